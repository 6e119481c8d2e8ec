"""sample_from_datasets and choose_from_datasets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.data import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    AutoShardPolicy,
    Dataset,
    Options,
)
from distlab.errors import StructureError, ValueShapeError
from tests.data import models
from tests.data.models import lists

WRONG: Any = [1, 2]
LENGTHS = st.lists(st.integers(0, 4), min_size=1, max_size=3)


def _parts(lengths: list[int]) -> list[Dataset]:
    return [Dataset.range(100 * i, 100 * i + n) for i, n in enumerate(lengths)]


@settings(max_examples=25, deadline=None)
@given(LENGTHS, st.data(), st.booleans())
def test_choices_are_those_of_the_model(lengths: list[int], data: Any, stop: bool) -> None:
    choices = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=12))
    parts = _parts(lengths)
    chosen = Dataset.choose_from_datasets(
        parts, Dataset.from_tensor_slices(np.array(choices, np.int64)), stop
    )
    expected = models.directed([lists(part) for part in parts], choices, stop)
    assert lists(chosen) == expected


@settings(max_examples=25, deadline=None)
@given(LENGTHS, st.data(), st.booleans(), st.integers(0, 5))
def test_samples_are_all_elements_in_the_order_of_each_part(
    lengths: list[int], data: Any, stop: bool, seed: int
) -> None:
    weights = data.draw(
        st.lists(
            st.sampled_from([0.0, 0.5, 2.0]), min_size=len(lengths), max_size=len(lengths)
        ).filter(any)
    )
    parts = _parts(lengths)
    found = lists(Dataset.sample_from_datasets(parts, weights, seed, stop_on_empty_dataset=stop))
    by_part = [[x for x in found if x // 100 == i] for i in range(len(parts))]
    whole = [lists(part) if weight else [] for part, weight in zip(parts, weights, strict=True)]
    for got, every in zip(by_part, whole, strict=True):
        assert got == every[: len(got)]
    if not stop:
        assert by_part == whole


def test_shares_are_the_weights() -> None:
    parts = [Dataset.from_tensors(i).repeat() for i in range(3)]
    for weights in ([0.2, 0.5, 0.3], [2, 5, 3], np.array([0.2, 0.5, 0.3], np.float32)):
        found = lists(Dataset.sample_from_datasets(parts, weights, seed=1).take(4000))
        np.testing.assert_allclose(np.bincount(found) / 4000, [0.2, 0.5, 0.3], atol=0.03)


def test_the_same_seed_gives_the_same_choices() -> None:
    parts = [Dataset.from_tensors(i).repeat() for i in range(2)]

    def sample(**more: Any) -> Dataset:
        return Dataset.sample_from_datasets(parts, seed=4, **more).take(50)

    assert lists(sample()) == lists(sample())
    same, other = sample(), sample(rerandomize_each_iteration=True)
    assert lists(same) == lists(same)
    assert lists(same.repeat(2))[:50] == lists(same.repeat(2))[50:]
    assert lists(other) != lists(other)


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda a, b: Dataset.sample_from_datasets([a, b]), UNKNOWN_CARDINALITY),
        (lambda a, b: Dataset.sample_from_datasets([a, b.repeat()]), INFINITE_CARDINALITY),
        (
            lambda a, b: Dataset.sample_from_datasets([a, b.repeat()], stop_on_empty_dataset=True),
            UNKNOWN_CARDINALITY,
        ),
        (lambda a, b: Dataset.sample_from_datasets([a, b], [1, 0]), 3),
        (
            lambda a, b: Dataset.choose_from_datasets(
                [a.repeat(), b.repeat()], Dataset.range(2).repeat()
            ),
            INFINITE_CARDINALITY,
        ),
    ],
)
def test_cardinality(make: Callable[[Dataset, Dataset], Dataset], size: int) -> None:
    assert make(Dataset.range(3), Dataset.range(4)).cardinality() == size


def test_specs_and_options_are_those_of_all_parts() -> None:
    options = Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF
    a = Dataset.from_tensor_slices(np.zeros((4, 2)))
    b = Dataset.from_tensor_slices(np.zeros((4, 3))).with_options(options)
    mixed = Dataset.sample_from_datasets([a, b])
    assert mixed.element_spec.shape == (None,)
    assert mixed.options().experimental_distribute.auto_shard_policy is AutoShardPolicy.OFF
    for other, error in ((a.batch(2), ValueShapeError), (Dataset.zip(a, a), StructureError)):
        with pytest.raises(error, match=r"one dtype and rank|one structure"):
            Dataset.choose_from_datasets([a, other], Dataset.range(2))
        with pytest.raises(error, match=r"one dtype and rank|one structure"):
            Dataset.sample_from_datasets([a, other])
