"""TFRecord files: what TensorFlow wrote, what is written here, and damage."""

from __future__ import annotations

import gzip
import itertools
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab.data import TFRecordDataset
from distlab.errors import (
    ArgumentTypeError,
    ContextError,
    DataLossError,
    InvalidArgumentError,
)
from distlab.io._records import masked_crc32c, record_of

WRITTEN = Path(__file__).parent / "records" / "examples.tfrecord"
"""Twelve records that TensorFlow wrote."""
RECORDS = [b"first", b"", b"the third one", b"\0\xff" * 20]
STARTS = list(itertools.accumulate((16 + len(data) for data in RECORDS), initial=0))
PACKED: dict[str, Any] = {"": bytes, "GZIP": gzip.compress, "ZLIB": zlib.compress}


def _write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def _read(dataset: dl.data.Dataset) -> Iterator[bytes | DataLossError]:
    """Yields the records, and the error that ends them."""
    try:
        yield from dataset
    except DataLossError as error:
        yield error


def test_records_of_tensorflow_are_read_and_written_again(tmp_path: Path) -> None:
    records = list(TFRecordDataset(WRITTEN))
    assert len(records) == 12
    assert list(TFRecordDataset(f"{WRITTEN}.gz", "GZIP")) == records
    with dl.io.TFRecordWriter(tmp_path / "again") as writer:
        for record in records:
            writer.write(record)
    assert (tmp_path / "again").read_bytes() == WRITTEN.read_bytes()


def test_a_changed_byte_is_found_wherever_it_is(tmp_path: Path) -> None:
    good = b"".join(map(record_of, RECORDS))
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 1 << place % 8
        name = _write(tmp_path / "bad", bytes(bad))
        *before, error = _read(TFRecordDataset(name))
        number = sum(start <= place for start in STARTS) - 1
        assert before == RECORDS[:number]
        assert isinstance(error, DataLossError)
        assert name in str(error)
        assert f"the record at byte {STARTS[number]} (number {number}, from 0)" in str(error)


def test_file_cut_off_within_a_record_names_the_place(tmp_path: Path) -> None:
    good = b"".join(map(record_of, RECORDS))
    for size in range(len(good)):
        name = _write(tmp_path / "cut", good[:size])
        read = list(_read(TFRecordDataset(name)))
        number = sum(start <= size for start in STARTS) - 1
        if size in STARTS:
            assert read == RECORDS[:number]
            continue
        assert read[:-1] == RECORDS[:number]
        assert isinstance(read[-1], DataLossError)
        assert "cut is cut off" in str(read[-1])
        assert f"the record at byte {STARTS[number]} (number {number}, from 0)" in str(read[-1])


def test_a_compressed_file_that_is_cut_off_is_found(tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(map(record_of, RECORDS)))
    for size in range(1, len(packed)):
        *before, error = _read(TFRecordDataset(_write(tmp_path / "cut", packed[:size]), "GZIP"))
        assert before == RECORDS[: len(before)]
        assert isinstance(error, DataLossError)
        assert f"after {len(before)} elements" in str(error)


def test_too_large_length_raises_and_fills_no_memory(
    tmp_path: Path,
) -> None:
    length = struct.pack("<Q", 2**60)
    head = length + struct.pack("<I", masked_crc32c(length))
    with pytest.raises(DataLossError, match=f"needs {2**60 + 4} bytes.*100 are left"):
        list(TFRecordDataset(_write(tmp_path / "a", head + bytes(100))))


def test_a_large_record_is_read_in_parts(tmp_path: Path) -> None:
    large = bytes(range(256)) * 2**17
    name = _write(tmp_path / "a", record_of(large) + record_of(b"next"))
    assert list(TFRecordDataset(name)) == [large, b"next"]
    cut = _write(tmp_path / "b", record_of(large)[:-5])
    with pytest.raises(DataLossError, match=f"{len(large) - 1} are left"):
        list(TFRecordDataset(cut))


@pytest.mark.parametrize(("compression", "other"), [("", "GZIP"), ("GZIP", "")])
def test_another_compression_than_the_files_is_named_as_a_cause(
    tmp_path: Path, compression: str, other: str
) -> None:
    name = _write(tmp_path / "a", PACKED[compression](b"".join(map(record_of, RECORDS))))
    with pytest.raises(DataLossError, match="compression_type"):
        list(TFRecordDataset(name, other))


@settings(max_examples=15, deadline=None)
@given(records=st.lists(st.binary(max_size=100)), compression=st.sampled_from(list(PACKED)))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], compression: str
) -> None:
    name = tmp_path_factory.mktemp("records") / "a"
    with dl.io.TFRecordWriter(name, compression) as writer:
        for record in records:
            writer.write(record)
    assert list(TFRecordDataset(name, compression)) == records


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_flushed_records_are_in_the_file_before_it_is_closed(
    tmp_path: Path, compression: str
) -> None:
    writer = dl.io.TFRecordWriter(tmp_path / "a", dl.io.TFRecordOptions(compression, 1))
    writer.write("é")
    writer.flush()
    assert next(iter(TFRecordDataset(tmp_path / "a", compression))) == "é".encode()
    writer.close()
    writer.close()
    with pytest.raises(ContextError, match="was closed"):
        writer.write(b"")


def test_writer_refuses_bad_arguments_before_making_the_file(tmp_path: Path) -> None:
    path: Any = tmp_path / "a"
    with pytest.raises(InvalidArgumentError, match="compression_type must be one of"):
        dl.io.TFRecordWriter(path, "LZMA")
    assert not path.exists()
    record: Any = 3
    with dl.io.TFRecordWriter(path) as writer, pytest.raises(ArgumentTypeError, match="got int"):
        writer.write(record)
    assert path.read_bytes() == b""
