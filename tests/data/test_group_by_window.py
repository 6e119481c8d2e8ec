"""group_by_window and bucket_by_sequence_length."""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.data import Dataset, TensorSpec
from distlab.errors import InvalidArgumentError, StructureError
from tests.data import models
from tests.data.models import KINDS, lists, numbers


@settings(max_examples=20, deadline=None)
@given(KINDS, st.integers(0, 20), st.integers(1, 4), st.integers(1, 5))
def test_groups_are_those_of_the_model(kind: str, count: int, keys: int, size: int) -> None:
    grouped = numbers(kind, count).group_by_window(
        lambda x: x % keys, lambda _, window: window.batch(9), window_size=size
    )
    assert lists(grouped) == models.groups(range(count), lambda x: x % keys, lambda _: size)
    sized = numbers(kind, count).group_by_window(
        lambda x: x % keys, lambda _, window: window.batch(9), window_size_func=lambda key: key + 1
    )
    assert lists(sized) == models.groups(range(count), lambda x: x % keys, lambda key: key + 1)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=20), st.booleans(), st.booleans())
def test_buckets_are_those_of_the_model(lengths: list[int], no_padding: bool, drop: bool) -> None:
    boundaries, sizes = [3, 6], [3, 2, 1]
    rows = [np.full(n, n, np.int32) for n in lengths]
    signature = TensorSpec((None,), np.dtype(np.int32))
    whole = rows
    dataset = Dataset.from_generator(lambda: iter(whole), output_signature=signature)
    if no_padding:
        dataset = dataset.map(lambda row: row[:1] * 0 + len(row)).filter(lambda row: len(row) > 0)
        rows = [np.array([n], np.int32) for n in lengths if n]
    length_of = (lambda row: row[0]) if no_padding else len
    bucketed = dataset.bucket_by_sequence_length(
        length_of, boundaries, sizes, no_padding=no_padding, drop_remainder=drop
    )
    groups = models.groups(
        rows,
        lambda row: bisect.bisect_right(boundaries, length_of(row)),
        lambda bucket: sizes[bucket],
    )
    expected = [
        models.padded(group, [None], 0, np.int32)
        for group in groups
        if not drop or len(group) == sizes[bisect.bisect_right(boundaries, length_of(group[0]))]
    ]
    found = list(bucketed)
    assert len(found) == len(expected)
    for batch, model in zip(found, expected, strict=True):
        np.testing.assert_array_equal(batch, model)


def _sequences(lengths: list[int], *, declared: bool = True) -> Dataset:
    signature = (TensorSpec((None, 2), np.dtype(np.float32)), TensorSpec((), np.dtype(np.int32)))
    return Dataset.from_generator(
        lambda: ((np.ones((n, 2), np.float32), n) for n in lengths),
        output_signature=signature if declared else None,
    )


def test_batches_can_be_padded_to_the_longest_of_their_bucket() -> None:
    def bucketed(dataset: Dataset, **more: Any) -> list[tuple[int, ...]]:
        made = dataset.bucket_by_sequence_length(
            lambda row, _: len(row), [4, 8], [2, 2, 1], pad_to_bucket_boundary=True, **more
        )
        return [row.shape for row, _ in made]

    assert bucketed(_sequences([1, 5, 2, 6])) == [(2, 3, 2), (2, 7, 2)]
    shapes: Any = ([None, 2], [])
    assert bucketed(_sequences([1, 5, 2, 6], declared=False), padded_shapes=shapes) == [
        (2, 3, 2),
        (2, 7, 2),
    ]
    with pytest.raises(InvalidArgumentError, match="shorter than the last boundary, 8"):
        bucketed(_sequences([9]))
    with pytest.raises(InvalidArgumentError, match="Give padded_shapes"):
        bucketed(_sequences([1], declared=False))


def test_specs_of_groups_are_those_of_the_function() -> None:
    bucketed = _sequences([1]).bucket_by_sequence_length(lambda r, _: len(r), [4], [2, 2])
    assert bucketed.element_spec[0].shape == (None, None, 2)
    assert Dataset.range(0).group_by_window(
        lambda x: x, lambda _, w: w.batch(2), 2
    ).element_spec.shape == (None,)


def test_functions_must_return_integers_and_datasets() -> None:
    numbers = Dataset.range(4)
    with pytest.raises(StructureError, match="key_func of group_by_window"):
        list(numbers.group_by_window(lambda x: x * 0.5, lambda _, w: w, 2))
    with pytest.raises(StructureError, match="group_by_window must return a Dataset"):
        list(numbers.group_by_window(lambda x: x, lambda *_: 3, 2))
    with pytest.raises(StructureError, match="element_length_func"):
        list(numbers.bucket_by_sequence_length(lambda x: x * 0.5, [3], [1, 1]))
