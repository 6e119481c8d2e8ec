"""as_dataset: what can be iterated becomes a dataset, what can't is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grain
import jax.numpy as jnp
import numpy as np
import pytest

from distlab.data import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, as_dataset
from distlab.errors import InvalidArgumentError, OneShotError, StructureError
from tests.data.models import lists


class TorchLikeTensor:
    """Knows the array protocol and nothing else, as foreign tensors do."""

    ndim = 1

    def __init__(self, *values: float) -> None:
        self._values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self._values, dtype=dtype or np.float32)


class Loader:
    """Like a data loader: a length, a new iteration each time, lists of tensors."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[list[TorchLikeTensor]]:
        yield [TorchLikeTensor(1, 2), TorchLikeTensor(3, 4)]
        yield [TorchLikeTensor(5), TorchLikeTensor(6)]


def test_batches_of_a_loader_become_tuples_of_arrays_each_time() -> None:
    dataset = as_dataset(Loader())
    for _ in range(2):
        (x, y), (last, _) = dataset
        np.testing.assert_array_equal(x, [1, 2])
        np.testing.assert_array_equal(y, [3, 4])
        np.testing.assert_array_equal(last, [5])
    assert [spec.shape for spec in dataset.element_spec] == [(None,), (None,)]
    assert len(dataset) == 2
    assert [e.indices for e in dataset.elements()] == [None, None]


def test_a_list_of_batches_and_jax_arrays() -> None:
    batches = [
        {"x": jnp.ones((2, 3)), "label": ["a", "b"]},
        {"x": jnp.zeros((1, 3)), "label": ["c"]},
    ]
    first, second = as_dataset(batches)
    assert isinstance(first["x"], np.ndarray)
    assert first["label"].tolist() == [b"a", b"b"]
    assert second["x"].shape == (1, 3)


def test_grain_datasets_of_both_kinds() -> None:
    source = grain.MapDataset.range(6).map(lambda x: x * 10).batch(4)
    assert lists(as_dataset(source)) == [[0, 10, 20, 30], [40, 50]]
    assert len(as_dataset(source)) == 2
    assert as_dataset(source.repeat()).cardinality() == INFINITE_CARDINALITY
    iterable = source.to_iter_dataset(grain.ReadOptions(num_threads=0))
    assert lists(as_dataset(iterable)) == [[0, 10, 20, 30], [40, 50]]
    assert as_dataset(iterable).cardinality() == UNKNOWN_CARDINALITY
    iterator = iter(as_dataset(iterable))
    next(iterator)
    other = iter(as_dataset(iterable))
    other.restore(iterator.state())
    assert next(other).tolist() == [40, 50]


def test_a_generator_is_read_once_and_says_so() -> None:
    dataset = as_dataset(np.array([i]) for i in range(3))
    assert lists(dataset) == [[0], [1], [2]]
    with pytest.raises(OneShotError, match="can be read only once"):
        list(dataset)


def test_looking_at_a_generator_loses_nothing() -> None:
    batches = as_dataset(np.array([i]) for i in range(5)).batch(2).map(lambda x: x + 1)
    assert batches.element_spec.shape == (None, 1)
    assert batches.batched
    assert lists(batches) == [[[1], [2]], [[3], [4]], [[5]]]


@pytest.mark.parametrize(
    "source",
    [np.ones(3), (np.ones(3), np.ones(3)), {"x": np.ones(3)}, jnp.ones(3), "text", b"bytes"],
)
def test_arrays_are_not_sliced_silently(source: Any) -> None:
    with pytest.raises(StructureError, match="from_tensor_slices"):
        as_dataset(source)


def test_nothing_tells_no_spec() -> None:
    assert list(as_dataset([])) == []
    with pytest.raises(InvalidArgumentError, match="no elements"):
        _ = as_dataset([]).element_spec
