"""padded_batch: shapes, padding values and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from distlab.data import UNKNOWN_CARDINALITY, Dataset, TensorSpec
from distlab.errors import InvalidArgumentError, StructureError, ValueShapeError
from tests.data import models

_DTYPES = st.sampled_from([np.int32, np.int64, np.float32, np.bool_, np.uint8])


@st.composite
def _cases(draw: Any) -> tuple[list[Any], list[int | None], Any]:
    rank, dtype = draw(st.integers(0, 3)), draw(_DTYPES)
    shapes = st.lists(st.integers(0, 3), min_size=rank, max_size=rank).map(tuple)
    rows = draw(st.lists(shapes.flatmap(lambda s: hnp.arrays(dtype, s)), min_size=1, max_size=6))
    shape = draw(st.lists(st.sampled_from([None, 3, 4]), min_size=rank, max_size=rank))
    return rows, shape, dtype


def _rows(rows: list[Any]) -> Dataset:
    return Dataset.from_generator(lambda: iter(rows))


@settings(max_examples=20, deadline=None)
@given(_cases(), st.integers(1, 4), st.booleans(), st.booleans())
def test_batches_are_those_of_the_model(
    case: tuple[list[Any], list[int | None], Any], size: int, drop: bool, as_default: bool
) -> None:
    rows, shape, dtype = case
    value = dtype(1)
    shapes = None if as_default else shape
    batches = list(_rows(rows).padded_batch(size, shapes, value, drop_remainder=drop))
    chunks = [rows[start : start + size] for start in range(0, len(rows), size)]
    chunks = [chunk for chunk in chunks if not drop or len(chunk) == size]
    target = [None] * len(shape) if as_default else shape
    expected = [models.padded(chunk, target, value, dtype) for chunk in chunks]
    assert len(batches) == len(expected)
    for batch, model in zip(batches, expected, strict=True):
        assert batch.dtype == model.dtype
        np.testing.assert_array_equal(batch, model)
        assert not batch.flags.writeable


def test_components_are_padded_by_themselves() -> None:
    def sequence(n: Any) -> Any:
        return {"ids": np.full(n, n, np.int32), "text": np.array([b"w"] * int(n), object)}, n

    dataset = Dataset.range(1, 4).map(sequence)
    (element,) = dataset.padded_batch(
        3,
        padded_shapes=({"ids": [4], "text": [None]}, []),
        padding_values=({"ids": -1, "text": "<pad>"}, None),
    )
    features, counts = element
    assert features["ids"].tolist() == [[1, -1, -1, -1], [2, 2, -1, -1], [3, 3, 3, -1]]
    assert features["text"].tolist()[0] == [b"w", b"<pad>", b"<pad>"]
    assert counts.tolist() == [1, 2, 3]


def test_padding_value_holds_for_all_and_scalars_need_none() -> None:
    pairs = Dataset.from_tensor_slices(([1, 2], ["a", "bb"]))
    ((numbers, words),) = pairs.padded_batch(2)
    assert numbers.tolist() == [1, 2]
    assert words.tolist() == [b"a", b"bb"]
    rows = Dataset.range(1, 3).map(lambda n: (np.ones(n, np.float32), np.ones(n, np.int64)))
    ((floats, ints),) = rows.padded_batch(2, padding_values=7)
    assert floats.tolist() == [[1, 7], [1, 1]]
    assert ints.tolist() == [[1, 7], [1, 1]]


def test_specs_tell_what_is_known() -> None:
    known = Dataset.from_tensor_slices(np.zeros((4, 2, 3), np.float32))
    assert known.padded_batch(2).element_spec.shape == (None, 2, 3)
    assert known.padded_batch(2, [None, 5], drop_remainder=True).element_spec.shape == (2, None, 5)
    varying = Dataset.range(1, 4).map(lambda n: np.zeros((n, 3)))
    assert varying.padded_batch(2).element_spec.shape == (None, None, None)
    signature = TensorSpec((None, 3), np.dtype(np.float32))
    declared = Dataset.from_generator(lambda: iter(()), output_signature=signature)
    assert declared.padded_batch(2).element_spec.shape == (None, None, 3)
    assert declared.padded_batch(2).cardinality() == UNKNOWN_CARDINALITY
    assert known.padded_batch(3).cardinality() == 2
    assert known.padded_batch(3, drop_remainder=True).cardinality() == 1


@pytest.mark.parametrize(
    ("shapes", "values", "match"),
    [
        ([1], None, "which is smaller"),
        ([None, None], None, "as many dimensions"),
        ("x", None, "sequence of sizes"),
        (None, 0.5, "component's dtype"),
        (None, [1, 2], "must be a scalar"),
    ],
)
def test_shapes_and_values_that_do_not_fit_are_refused(
    shapes: Any, values: Any, match: str
) -> None:
    rows = Dataset.range(1, 4).map(lambda n: np.full(n, n))
    with pytest.raises(InvalidArgumentError, match=match):
        list(rows.padded_batch(2, shapes, values))


def test_structures_ranks_and_dtypes_must_agree() -> None:
    pairs = Dataset.from_tensor_slices(([1, 2], [1, 2]))
    with pytest.raises(StructureError, match="must have the structure"):
        list(pairs.padded_batch(2, ([],)))
    with pytest.raises(StructureError, match="must have the structure"):
        list(pairs.padded_batch(2, padding_values=(1, 2, 3)))
    with pytest.raises(InvalidArgumentError, match="one number of dimensions"):
        list(_rows([np.zeros(2), np.zeros((2, 2))]).padded_batch(2))
    with pytest.raises(ValueShapeError, match="one dtype"):
        list(_rows([np.zeros(2), np.zeros(2, np.int32)]).padded_batch(2))
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        pairs.padded_batch(0)
