"""tf.train.Example messages: what TensorFlow reads from them, other encodings, and damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab.errors import InvalidArgumentError
from distlab.io import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    Ragged,
    RaggedFeature,
    VarLenFeature,
    parse_example,
    parse_single_example,
    serialize_example,
)

FOLDER = Path(__file__).parent / "records"
RECORDS = list(dl.data.TFRecordDataset(FOLDER / "examples.tfrecord"))
"""Twelve examples that TensorFlow wrote."""
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
"""What TensorFlow reads from them; strings in hexadecimal."""
FEATURES: dict[str, Any] = {
    "id": FixedLenFeature([], jnp.int64),
    "x": FixedLenFeature([3], np.float32),
    "name": FixedLenFeature([], "string"),
    "weight": FixedLenFeature([], "float32", 1.25),
    "tokens": VarLenFeature(np.int64),
    "parts": RaggedFeature(bytes),
}


def _plain(value: Any) -> Any:
    """Returns a value as expected.json has it."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, bytes):
        return value.hex()
    return _plain(value.tolist()) if isinstance(value, np.ndarray | np.generic) else value


def _sparse(value: Ragged) -> Any:
    return {"indices": value.indices, "values": value.values, "shape": value.dense_shape}


def test_a_batch_is_read_as_tensorflow_reads_it() -> None:
    batch = parse_example(RECORDS, FEATURES)
    batch["tokens"] = _sparse(batch["tokens"])
    batch["parts"] = batch["parts"].to_list()
    assert _plain(batch) == EXPECTED["batch of 12"]


def test_one_example_is_read_as_tensorflow_reads_it() -> None:
    for read in (parse_single_example, parse_example):
        one = read(RECORDS[7], FEATURES)
        one["tokens"] = _sparse(one["tokens"])
        assert _plain(one) == EXPECTED["one"]


def test_every_example_alone_is_its_row_of_the_batch() -> None:
    batch = parse_example(np.array(RECORDS, dtype=object), FEATURES)
    for number, record in enumerate(RECORDS):
        one = parse_single_example(record, FEATURES)
        for key in ("id", "x", "name", "weight"):
            np.testing.assert_array_equal(one[key], batch[key][number])
            assert one[key].dtype == FEATURES[key].dtype if key != "name" else True
        assert one["tokens"].to_list() == batch["tokens"].to_list()[number]
        assert one["parts"].tolist() == batch["parts"].to_list()[number]


# Wire format: field numbers and types as in TensorFlow's example.proto and feature.proto.


def _field(number: int, data: bytes) -> bytes:
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def _example(*entries: tuple[str, bytes]) -> bytes:
    entry = b"".join(
        _field(1, _field(1, key.encode()) + _field(2, feature)) for key, feature in entries
    )
    return _field(1, entry)


def test_packed_and_unpacked_numbers_are_the_same() -> None:
    features = {"x": FixedLenFeature([3], np.int64), "y": FixedLenFeature([2], np.float32)}
    one, two = np.float32(1.5), np.float32(-2.0)
    packed = _example(
        ("x", _field(3, _field(1, b"\x01\x96\x01\x03"))),
        ("y", _field(2, _field(1, one.tobytes() + two.tobytes()))),
    )
    unpacked = _example(
        ("x", _field(3, b"\x08\x01\x08\x96\x01\x08\x03")),
        ("y", _field(2, b"\x0d" + one.tobytes() + b"\x0d" + two.tobytes())),
    )
    for record in (packed, unpacked):
        read = parse_single_example(record, features)
        assert read["x"].tolist() == [1, 150, 3]
        assert read["y"].tolist() == [1.5, -2.0]


def test_last_equal_key_counts_and_unknown_fields_are_skipped() -> None:
    def number(value: int) -> bytes:
        return _field(3, _field(1, bytes([value])))

    feature = {"x": FixedLenFeature([], "int64")}
    twice = _example(("x", number(1)), ("x", number(2)))
    assert parse_single_example(twice, feature)["x"] == 2
    joined = _example(("x", number(1))) + _example(("x", number(3)))
    assert parse_single_example(joined, feature)["x"] == 3
    unknown = _field(9, b"later versions") + _example(("x", number(4) + _field(15, b"?")))
    assert parse_single_example(unknown, feature)["x"] == 4


@settings(max_examples=40, deadline=None)
@given(record=st.binary(max_size=60))
def test_bytes_that_are_no_example_never_give_another_error(record: bytes) -> None:
    features = {"x": FixedLenFeature([], "int64", 7)}
    try:
        read = parse_single_example(record, features)
    except InvalidArgumentError:
        return
    assert set(read) == {"x"}


_VALUES: dict[str, st.SearchStrategy[list[Any]]] = {
    "int64": st.lists(st.integers(-(2**63), 2**63 - 1)),
    "float32": st.lists(st.floats(width=32, allow_nan=False)),
    "bytes": st.lists(st.binary(max_size=5)),
}


@settings(max_examples=20, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(list(_VALUES)))
def test_what_is_serialized_is_parsed(data: st.DataObject, dtype: str) -> None:
    rows = data.draw(st.lists(_VALUES[dtype], min_size=1, max_size=4))
    kind = np.dtype(object if dtype == "bytes" else dtype)

    def record(row: list[Any]) -> bytes:
        if not row:
            return serialize_example({})
        return serialize_example({"x": row if dtype == "bytes" else np.array(row, kind)})

    read = parse_example([record(row) for row in rows], {"x": VarLenFeature(dtype)})["x"]
    assert read.to_list() == rows
    assert read.dense.dtype == kind
    assert read.lengths.tolist() == [len(row) for row in rows]


def test_long_and_short_rows_are_read_the_same_way() -> None:
    rows = [np.arange(n, dtype=np.int64) for n in (0, 1, 200, 3)]
    records = [serialize_example({"x": row, "y": row.astype(np.float32)}) for row in rows]
    for batch in (records, records[2:3], records[:1]):
        read = parse_example(batch, {"x": VarLenFeature("int64"), "y": RaggedFeature("float32")})
        lengths = read["x"].lengths
        for row, length in zip(read["x"].dense, lengths, strict=True):
            assert row[:length].tolist() == list(range(length))
            assert not row[length:].any()
        np.testing.assert_array_equal(read["y"].dense, read["x"].dense)


def test_shapes_defaults_and_lists_without_values() -> None:
    record = serialize_example({"x": [1, 2, 3, 4], "none": np.zeros(0, np.int64)})
    features = {
        "x": FixedLenFeature([2, 2], "int64"),
        "y": FixedLenFeature([2, 2], np.float32, [[1, 2], [3, 4.5]]),
        "z": FixedLenFeature(2, str, ["a", b"b"]),
        "none": VarLenFeature("int64"),
        "missing": VarLenFeature("float32"),
    }
    read = parse_single_example(record, features)
    assert read["x"].tolist() == [[1, 2], [3, 4]]
    assert read["y"].tolist() == [[1, 2], [3, 4.5]]
    assert read["z"].tolist() == [b"a", b"b"]
    for key in ("none", "missing"):
        assert read[key].dense.shape == (0,)
        assert read[key].lengths == 0
    with pytest.raises(InvalidArgumentError, match=r"must have 1 values for shape \[\], got 0"):
        parse_single_example(record, {"none": FixedLenFeature([], "int64", 7)})
    words = parse_example(
        [serialize_example({"x": ["a", "b"]}), serialize_example({})], {"x": VarLenFeature(str)}
    )["x"]
    assert words.to_dense("none").tolist() == [[b"a", b"b"], [b"none", b"none"]]
    assert words.to_list() == [[b"a", b"b"], []]
    empty = parse_example([], features)
    assert empty["x"].shape == (0, 2, 2)
    assert empty["none"].dense.shape == (0, 0)


def test_blocks_are_padded_to_the_most_blocks_of_the_batch() -> None:
    records = [serialize_example({"x": list(range(2 * n))} if n else {}) for n in (1, 0, 2)]
    feature = FixedLenSequenceFeature([2], "int64", allow_missing=True, default_value=-1)
    read = parse_example(records, {"x": feature})["x"]
    expected = [[[0, 1], [-1, -1]], [[-1, -1], [-1, -1]], [[0, 1], [2, 3]]]
    assert read.tolist() == expected
    assert parse_single_example(records[1], {"x": feature})["x"].shape == (0, 2)
    odd = FixedLenSequenceFeature([3], "int64", allow_missing=True)
    with pytest.raises(InvalidArgumentError, match=r"multiple of 3 values.*got 2"):
        parse_example(records, {"x": odd})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedLenFeature([None], "int64"), "use FixedLenSequenceFeature or VarLenFeature"),
        (lambda: FixedLenFeature([], "int64", 1.5), "must be 1 values of dtype int64"),
        (lambda: FixedLenFeature([], np.int32), r"must be float32, int64 or bytes.*int32.*convert"),
        (lambda: FixedLenSequenceFeature([], "int64"), "needs allow_missing=True"),
        (lambda: parse_example(RECORDS, {}), "must be a dict with a feature for each key"),
        (lambda: parse_example("text", FEATURES), "list or 1-d array of bytes, got str"),
        (lambda: parse_single_example(RECORDS, FEATURES), "For a batch of them use parse_example"),
        (lambda: serialize_example({"x": []}), "a list without values needs a dtype"),
        (lambda: serialize_example({"x": None}), "'x' must be numbers"),
    ],
)
def test_misuse_is_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        make()


def test_python_and_tensorflow_dtypes_are_understood() -> None:
    class StringType:  # as tf.string
        as_numpy_dtype = np.object_

    assert FixedLenFeature([], StringType()).dtype == object
    assert FixedLenFeature([], float).dtype == np.float32
    assert FixedLenFeature([], int).dtype == np.int64
    assert RaggedFeature("int64", value_key="a") == RaggedFeature(np.int64, "a")


def test_equal_features_are_equal_bytes() -> None:
    values = {"b": np.arange(3), "a": [b"\0", b"x\0"], "c": (True, False), "d": np.float32(0.5)}
    assert serialize_example(values) == serialize_example(dict(reversed(values.items())))
    read = parse_single_example(
        serialize_example(values),
        {"a": FixedLenFeature([2], bytes), "c": FixedLenFeature([2], "int64")},
    )
    assert read["a"].tolist() == [b"\0", b"x\0"]
    assert read["c"].tolist() == [1, 0]
