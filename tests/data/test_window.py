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


@settings(max_examples=30, deadline=None)
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
