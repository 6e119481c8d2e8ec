"""The verbs: how functions are called, what elements look like, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from distlab.data import (
    AUTOTUNE,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Dataset,
    TensorSpec,
)
from distlab.errors import (
    CardinalityError,
    InvalidArgumentError,
    NotBatchedError,
    StructureError,
    ValueShapeError,
)
from tests.data.models import lists


class Pair(NamedTuple):
    a: Any
    b: Any


def _shapes(nest: Any) -> Any:
    return tuple(map(_shapes, nest)) if isinstance(nest, tuple) else nest.shape


def test_results_of_map_get_the_dtypes_of_tf_data() -> None:
    spec = Dataset.range(2).map(lambda x: (x, 1, 1.0, "s", [1, 2], jnp.ones(3))).element_spec
    assert [s.dtype.name for s in spec] == [
        "int64", "int32", "float32", "object", "int32", "float32",
    ]  # fmt: skip
    assert _shapes(spec) == ((), (), (), (), (2,), (3,))


def test_batch_sizes_are_unknown_unless_remainders_are_dropped() -> None:
    rows = Dataset.from_tensor_slices(np.zeros((7, 3), np.float32))
    assert rows.element_spec == TensorSpec((3,), np.dtype("float32"))
    assert rows.batch(2).element_spec.shape == (None, 3)
    assert rows.batch(2, drop_remainder=True).element_spec.shape == (2, 3)
    assert rows.batch(2).map(lambda x: (x.sum(1), x.T)).element_spec == (
        TensorSpec((None,), np.dtype("float32")),
        TensorSpec((3, 2), np.dtype("float32")),
    )
    assert rows.batch(2).batch(2).element_spec.shape == (None, None, 3)
    assert rows.batch(2).unbatch().element_spec.shape == (3,)
    assert rows.batch(2).rebatch(3).element_spec.shape == (None, 3)
    assert rows.batch(2).rebatch([3, 3], drop_remainder=True).element_spec.shape == (3, 3)
    assert _shapes(rows.enumerate().element_spec) == ((), (3,))
    assert rows.flat_map(Dataset.from_tensor_slices).element_spec.shape == ()


def test_the_spec_of_a_mapped_empty_dataset_is_told_from_zeros() -> None:
    assert Dataset.range(0).batch(4).map(lambda x: x * 2).element_spec.shape == (None,)


def test_indices_survive_verbs_that_keep_elements() -> None:
    rows = Dataset.from_tensor_slices(np.arange(20) * 10)
    dataset = (
        rows.shuffle(20, seed=4)
        .filter(lambda x: x % 20 == 0)
        .map(lambda x: (x, x + 1))
        .batch(4)
        .rebatch(3)
        .unbatch()
        .batch(2)
        .prefetch(1)
        .enumerate()
        .map(lambda _, pair: pair[0])
    )
    seen = []
    for element in dataset.elements():
        assert element.indices is not None
        np.testing.assert_array_equal(element.value, element.indices * 10)
        seen.extend(element.indices.tolist())
    assert sorted(seen) == list(range(0, 20, 2))


def test_indices_are_known_in_one_concatenated_source_only() -> None:
    a, b = Dataset.range(3), Dataset.range(10, 12)
    assert [e.indices for e in a.concatenate(b).batch(2).elements()] == [None] * 3
    parts = a.take(1).concatenate(a.skip(2))
    assert [e.indices.tolist() for e in parts.elements() if e.indices is not None] == [[0], [2]]


def test_zipped_indices_are_those_the_parts_agree_on() -> None:
    a, b = Dataset.range(4), Dataset.from_tensor_slices([5, 6, 7, 8])
    same = Dataset.zip(a, {"b": b}).batch(4)
    assert [e.indices.tolist() for e in same.elements() if e.indices is not None] == [[0, 1, 2, 3]]
    assert [e.indices for e in Dataset.zip(a, b.skip(1)).elements()] == [None] * 3


def test_positions_are_not_claimed_where_sources_mix() -> None:
    mixed = Dataset.range(2).flat_map(Dataset.range)
    assert [e.indices for e in mixed.elements()] == [None]


def _by_parity(numbers: Dataset) -> Dataset:
    return numbers.group_by_window(lambda x: x % 2, lambda _, window: window.batch(2), 2)


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda: Dataset.range(7).repeat(), INFINITE_CARDINALITY),
        (lambda: Dataset.range(0).repeat(), 0),
        (lambda: Dataset.range(7).repeat().take(3), 3),
        (lambda: Dataset.range(7).repeat().take(-1), INFINITE_CARDINALITY),
        (lambda: Dataset.range(7).filter(bool).take(2), UNKNOWN_CARDINALITY),
        (lambda: Dataset.range(7).batch(2).unbatch(), UNKNOWN_CARDINALITY),
        (lambda: Dataset.range(7).batch(2, drop_remainder=True).unbatch(), 6),
        (lambda: Dataset.range(7).batch(2).rebatch(3), UNKNOWN_CARDINALITY),
        (lambda: Dataset.range(7).enumerate(), 7),
        (lambda: Dataset.zip(Dataset.range(7), Dataset.range(3).repeat()), 7),
        (lambda: Dataset.range(7).concatenate(Dataset.range(1).repeat()), INFINITE_CARDINALITY),
        (lambda: Dataset.range(7).flat_map(Dataset.range), UNKNOWN_CARDINALITY),
        (lambda: _by_parity(Dataset.range(3).repeat()), INFINITE_CARDINALITY),
    ],
)
def test_cardinality(make: Callable[[], Dataset], size: int) -> None:
    dataset = make()
    assert dataset.cardinality() == size
    if size >= 0:
        assert len(dataset) == len(list(dataset)) == size
    else:
        with pytest.raises(CardinalityError, match="cardinality"):
            len(dataset)


def test_a_dataset_is_true_and_says_its_size_without_reading() -> None:
    def fail(x: Any) -> Any:
        raise AssertionError(x)

    assert Dataset.range(0)
    assert repr(Dataset.range(3).map(fail)) == "<distlab.data.Dataset of 3 elements>"
    assert "infinitely many" in repr(Dataset.range(3).repeat())


def test_an_endless_repetition_of_nothing_ends() -> None:
    assert list(Dataset.range(4).filter(lambda x: x > 9).repeat()) == []
    assert list(Dataset.range(4).shuffle(2).take(0).repeat()) == []


def test_rebatch_takes_batches_of_any_sizes() -> None:
    uneven = Dataset.range(3).batch(3).concatenate(Dataset.range(3, 10).batch(2)).rebatch(4)
    assert lists(uneven) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_elements_of_different_shapes_can_not_be_stacked() -> None:
    ragged = Dataset.range(3).map(np.zeros)
    with pytest.raises(InvalidArgumentError, match="must have one shape"):
        list(ragged.batch(2))
    assert lists(ragged.batch(1)) == [[[]], [[0.0]], [[0.0, 0.0]]]


def test_different_structures_cannot_be_stacked_or_joined() -> None:
    mixed = Dataset.range(2).map(lambda x: {"a": x} if x else {"b": x})
    with pytest.raises(StructureError, match="one structure"):
        list(mixed.batch(2))
    with pytest.raises(ValueShapeError, match="one dtype and rank, got int64"):
        Dataset.range(2).concatenate(Dataset.from_tensor_slices([1]))
    with pytest.raises(ValueShapeError, match="one dtype and rank"):
        Dataset.range(2).concatenate(Dataset.from_tensors(np.arange(2)))


def test_rows_of_scalars_and_of_uneven_components_are_refused() -> None:
    with pytest.raises(NotBatchedError, match="Call batch"):
        list(Dataset.range(3).unbatch())
    with pytest.raises(InvalidArgumentError, match="share their first dimension"):
        list(Dataset.from_tensors(([1, 2], [1, 2, 3])).unbatch())


def test_apply_and_autotune() -> None:
    dataset = Dataset.range(4).apply(lambda d: d.batch(2)).prefetch(AUTOTUNE)
    assert lists(dataset) == [[0, 1], [2, 3]]
    interleaved = Dataset.range(2).interleave(lambda x: Dataset.range(x, x + 2), AUTOTUNE)
    assert sorted(lists(interleaved)) == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: Dataset.range(5).batch(2).flat_map(Dataset.from_tensors), (None,)),
        (lambda: Dataset.range(0).batch(2).flat_map(Dataset.from_tensors), (None,)),
        (lambda: Dataset.range(5).batch(2).interleave(Dataset.from_tensor_slices), ()),
        (lambda: Dataset.range(8).batch(4, drop_remainder=True).rebatch(2), (2,)),
        (lambda: Dataset.range(8).batch(4, drop_remainder=True).rebatch(3), (None,)),
    ],
)
def test_specs_promise_no_more_than_all_elements_keep(
    make: Callable[[], Dataset], shape: tuple[int | None, ...]
) -> None:
    assert make().element_spec.shape == shape
