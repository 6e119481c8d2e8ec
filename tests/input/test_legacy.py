"""TensorFlow 1's input iterators."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import distlab as dl
from distlab.errors import ArgumentValueError, NotBatchedError, OutOfRangeError
from distlab.input.legacy import InputIterator
from tests.input.feeding import local, mirrored, numbers


def _all(strategy: dl.Strategy, iterator: InputIterator) -> list[Any]:
    iterator.initialize()
    seen = []
    while (optional := iterator.get_next_as_optional()).has_value():
        seen.append(local(strategy, optional.get_value()))
    with pytest.raises(OutOfRangeError):
        iterator.get_next()
    return seen


def test_a_dataset_iterator_divides_batches_and_starts_again() -> None:
    strategy = mirrored(3)
    iterator = strategy.make_dataset_iterator(numbers(5, 4))
    expected = [[[0, 1], [2, 3], []], [[4], [], []]]
    assert [_all(strategy, iterator) for _ in range(2)] == [expected, expected]
    assert iterator.element_spec.value_specs[0].shape == (None,)


def test_input_function_gets_context_and_drops_incomplete_steps() -> None:
    contexts = []

    def input_fn(context: dl.InputContext) -> dl.data.Dataset:
        contexts.append(context)
        return numbers(5, context.get_per_replica_batch_size(2))

    strategy = mirrored(2)
    iterator = strategy.make_input_fn_iterator(input_fn)
    iterator.initialize()
    assert [local(strategy, iterator.get_next()) for _ in range(2)] == [[[0], [1]], [[2], [3]]]
    with pytest.raises(OutOfRangeError):
        iterator.get_next()
    assert contexts == [dl.InputContext(1, 0, 2)]


def test_input_function_may_return_function_of_single_elements() -> None:
    counter = itertools.count()
    strategy = mirrored(2)
    iterator = strategy.make_input_fn_iterator(lambda _: lambda: np.float32(next(counter)))
    iterator.initialize()
    assert [local(strategy, iterator.get_next()) for _ in range(2)] == [[0, 1], [2, 3]]


def test_the_functions_end_is_the_end_of_the_data() -> None:
    """As in TensorFlow's own tests of a callable over an iterator."""
    started: list[int] = []

    def input_fn(_: dl.InputContext) -> Any:
        rows = itertools.count()

        def element() -> Any:
            number = next(rows)
            if number >= 5:
                raise OutOfRangeError
            started.append(number)
            return np.float32(number), {"double": np.float32(2 * number)}

        return element

    strategy = mirrored(2)
    iterator = strategy.make_input_fn_iterator(input_fn)
    iterator.initialize()
    for expected in ([0, 1], [2, 3]):
        x, rest = iterator.get_next()
        assert local(strategy, x) == expected
        assert local(strategy, rest["double"]) == [2 * number for number in expected]
    for _ in range(2):
        with pytest.raises(OutOfRangeError, match="ended after 2 batches"):
            iterator.get_next()
    assert started == [0, 1, 2, 3, 4]


def test_experimental_run_takes_the_next_element() -> None:
    strategy = mirrored(2)
    iterator = strategy.make_dataset_iterator(numbers(6, 4))
    iterator.initialize()
    runs = [strategy.experimental_run(lambda x: x * 2, iterator) for _ in range(2)]
    assert [local(strategy, value) for value in runs] == [[[0, 2], [4, 6]], [[8], [10]]]
    with pytest.raises(OutOfRangeError):
        strategy.experimental_run(lambda x: x, iterator)
    constant = strategy.experimental_run(lambda: 3)
    assert local(strategy, constant)[0] == 3


def test_the_default_strategy_has_them_too() -> None:
    strategy = dl.get_strategy()
    assert _all(strategy, strategy.make_dataset_iterator(numbers(3, 2))) == [[[0, 1]], [[2]]]
    made = strategy.make_input_fn_iterator(lambda _: numbers(3, 2))
    assert _all(strategy, made) == [[[0, 1]], [[2]]]
    iterator = strategy.make_dataset_iterator(numbers(3, 2))
    assert local(strategy, strategy.experimental_run(lambda x: x + 1, iterator)) == [[1, 2]]


def test_misuse_is_refused() -> None:
    strategy = mirrored(2)
    with pytest.raises(NotBatchedError):
        strategy.make_dataset_iterator(dl.data.Dataset.range(6))
    with pytest.raises(ArgumentValueError, match="PER_WORKER only"):
        strategy.make_input_fn_iterator(
            lambda _: numbers(4, 2), dl.InputReplicationMode.PER_REPLICA
        )
