"""reduce, take_while and counter."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.data import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Dataset, TensorSpec
from distlab.errors import ValueShapeError
from tests.data.models import lists

HALF: Any = 0.5  # where an integer is wanted
ITEMS = st.lists(st.integers(-5, 5), max_size=12)


def _of(items: list[int]) -> Dataset:
    return Dataset.from_tensor_slices(np.array(items, np.int64))


@settings(max_examples=25, deadline=None)
@given(ITEMS, st.integers(-3, 3))
def test_the_verbs_do_as_the_model(items: list[int], start: int) -> None:
    dataset = _of(items)
    sums = list(itertools.accumulate(items, initial=start))
    assert dataset.reduce(np.int64(start), lambda s, x: s + x) == sums[-1]
    assert lists(dataset.take_while(lambda x: x != start)) == list(
        itertools.takewhile(lambda x: x != start, items)
    )


def test_a_state_is_a_nest_of_numpy_values() -> None:
    pairs = Dataset.from_tensor_slices(([1, 2, 3], [1.0, 2.0, 3.0]))

    def step(state: Any, element: Any) -> Any:
        number, x = element
        return {"count": state["count"] + 1, "sum": state["sum"] + np.float32(number) * x}

    result = pairs.reduce({"count": np.int64(0), "sum": np.float32(0)}, step)
    assert result == {"count": 3, "sum": 14.0}
    assert result["count"].dtype == np.int64
    assert Dataset.range(0).reduce(0, lambda s, x: s + x).dtype == np.int32


def test_take_while_stays_ended() -> None:
    iterator = iter(Dataset.from_tensor_slices([1, 0, 1]).take_while(bool))
    assert iterator.element_spec == TensorSpec((), np.dtype(np.int32))
    assert Dataset.range(2).take_while(bool).cardinality() == UNKNOWN_CARDINALITY
    assert next(iterator) == 1
    assert list(iterator) == []
    assert list(iterator) == []
    with pytest.raises(ValueShapeError, match="take_while must return one truth value"):
        list(Dataset.range(4).batch(2).take_while(lambda x: x > 1))


def test_numbers_of_a_type_counted() -> None:
    assert Dataset.range(3, output_type=np.int32).element_spec.dtype == np.int32
    assert lists(Dataset.range(0, 10, 4, output_type=np.float32)) == [0.0, 4.0, 8.0]
    counter = Dataset.counter(10, -3, dtype=np.int16)
    assert lists(counter.batch(3).take(2)) == [[10, 7, 4], [1, -2, -5]]
    assert next(iter(counter)).dtype == np.int16
    assert counter.cardinality() == INFINITE_CARDINALITY
    assert lists(counter.shuffle(2, seed=1).skip(10).take(2))


def test_reduce_leaves_the_first_state_as_it_was() -> None:
    start = (np.zeros(1), [np.zeros(2), np.zeros(2)])

    def count(state: Any, _: Any) -> Any:
        state[0][0] += 1
        state[1][1] += 2
        return state

    for _ in range(2):
        one, others = Dataset.range(3).reduce(start, count)
        assert one.tolist() == [3]
        assert others.tolist() == [[0, 0], [6, 6]]
    assert [start[0].tolist(), start[1][1].tolist()] == [[0], [0, 0]]
