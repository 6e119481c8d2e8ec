"""window: nested datasets, as tf.data makes them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.data import INFINITE_CARDINALITY, Dataset, DatasetSpec, TensorSpec
from distlab.errors import StructureError
from tests.data import models
from tests.data.models import KINDS, SIZES, SMALL, lists, numbers


@settings(max_examples=80, deadline=None)
@given(KINDS, SIZES, SMALL, SMALL, SMALL, st.booleans())
def test_windows_are_those_of_the_model(
    kind: str, count: int, size: int, shift: int, stride: int, drop: bool
) -> None:
    windowed = numbers(kind, count).window(size, shift, stride, drop)
    expected = models.windows(range(count), size, shift, stride, drop)
    assert [lists(window) for window in windowed] == expected
    assert windowed.cardinality() == len(expected)
    batched = windowed.flat_map(lambda window: window.batch(size, drop_remainder=drop))
    assert lists(batched) == expected
    assert [len(window) for window in windowed] == [len(each) for each in expected]


def test_each_component_is_a_dataset_of_its_own() -> None:
    pairs = Dataset.from_tensor_slices((np.arange(4), {"k": np.arange(4) + 10}))
    first, second = windows = list(pairs.window(2))
    assert lists(first[0]) == [0, 1]
    assert lists(first[1]["k"]) == [10, 11]
    assert lists(second[1]["k"]) == [12, 13]
    assert len(windows) == 2
    zipped = pairs.window(2).flat_map(lambda a, b: Dataset.zip((a, b["k"])).batch(2))
    assert [(a.tolist(), b.tolist()) for a, b in zipped] == [
        ([0, 1], [10, 11]),
        ([2, 3], [12, 13]),
    ]


def test_windows_can_be_read_again_and_shuffled_and_repeated() -> None:
    (window,) = Dataset.range(4).window(4)
    assert lists(window) == lists(window) == [0, 1, 2, 3]
    assert sorted(lists(window.shuffle(4, seed=1).repeat(2))) == [0, 0, 1, 1, 2, 2, 3, 3]
    shuffled = Dataset.range(6).window(2).shuffle(3, seed=1)
    assert sorted(tuple(lists(window)) for window in shuffled) == [(0, 1), (2, 3), (4, 5)]


def test_the_spec_of_a_window_is_that_of_a_dataset() -> None:
    spec = Dataset.range(4).batch(2).window(2).element_spec
    assert spec == DatasetSpec(TensorSpec((None,), np.dtype(np.int64)))
    (window,) = Dataset.range(4).batch(2).window(2)
    assert window.element_spec == spec.element_spec
    assert Dataset.range(4).repeat().window(2).cardinality() == INFINITE_CARDINALITY


def test_functions_can_return_datasets() -> None:
    nested = Dataset.range(3).map(Dataset.range)
    assert [lists(each) for each in nested] == [[], [0], [0, 1]]
    assert nested.element_spec == DatasetSpec(TensorSpec((), np.dtype(np.int64)))
    assert lists(nested.flat_map(lambda each: each)) == [0, 0, 1]
    assert lists(nested.map(lambda each: each.reduce(0, lambda s, x: s + x))) == [0, 0, 1]


def test_datasets_can_not_be_stacked() -> None:
    windows = Dataset.range(4).window(2)
    for dataset in (windows.batch(2), windows.padded_batch(2)):
        with pytest.raises(StructureError, match="flat_map"):
            _ = dataset.element_spec
        with pytest.raises(StructureError, match="flat_map"):
            list(dataset)
    with pytest.raises(StructureError, match="must be arrays"):
        Dataset.from_tensors(windows)
