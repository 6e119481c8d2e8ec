"""Iterators over distributed datasets: the end, optionals, contexts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distlab as dl
from distlab.errors import ContextError, IteratorContextError, OutOfRangeError
from tests.input.feeding import local, mirrored, numbers, steps


@pytest.mark.parametrize("eagerly", [False, True])
def test_replica_function_cannot_take_elements_and_loses_none(eagerly: bool) -> None:
    strategy = mirrored(2)
    iterator = iter(strategy.experimental_distribute_dataset(numbers(4, 2)))
    options = dl.RunOptions(run_eagerly=eagerly)
    for ask in (iterator.get_next, iterator.get_next_as_optional, lambda: next(iterator)):
        with pytest.raises(IteratorContextError, match=r"args=\(next\(iterator\),\)"):
            strategy.run(ask, options=options)
    assert issubclass(IteratorContextError, ValueError)
    assert steps(strategy, iterator) == [[[0], [1]], [[2], [3]]]


def test_another_strategys_scope_is_no_place_to_iterate() -> None:
    iterator = iter(mirrored(2).experimental_distribute_dataset(numbers(4, 2)))
    with mirrored(3).scope(), pytest.raises(ContextError, match="leave that scope first"):
        next(iterator)
    assert next(iterator) is not None


def test_the_default_strategy_gives_the_dataset_itself() -> None:
    dataset = numbers(3, 2)
    default = dl.get_strategy()
    assert default.experimental_distribute_dataset(dataset) is dataset
    assert default.distribute_datasets_from_function(lambda _: dataset) is dataset
    contexts: list[dl.InputContext] = []
    default.experimental_distribute_datasets_from_function(contexts.append)
    assert contexts == [dl.InputContext(1, 0, 1)]
    iterator = iter(default.experimental_distribute_dataset(dataset))
    assert iterator.element_spec == dataset.element_spec
    assert iterator.get_next().tolist() == [0, 1]
    assert iterator.get_next_as_optional().get_value().tolist() == [2]
    assert not iterator.get_next_as_optional().has_value()
    with pytest.raises(OutOfRangeError, match="no more elements"):
        iterator.get_next()


@pytest.mark.parametrize("thing", [None, 3, np.zeros(3), (np.zeros(3), np.zeros(3)), "data"])
def test_what_is_no_dataset_is_refused(thing: Any) -> None:
    for strategy in (mirrored(2), dl.get_strategy()):
        with pytest.raises(dl.errors.StructureError, match="must be an iterable of batches"):
            strategy.experimental_distribute_dataset(thing)


def test_strings_stay_on_the_host() -> None:
    dataset = dl.data.Dataset.from_tensor_slices([b"a", b"bb", b"c"]).batch(3)
    strategy = mirrored(2)
    assert steps(strategy, strategy.experimental_distribute_dataset(dataset)) == [
        [[b"a", b"bb"], [b"c"]]
    ]
    one = dl.OneDeviceStrategy("CPU:0")
    (whole,) = one.experimental_distribute_dataset(dataset)
    assert whole.tolist() == [b"a", b"bb", b"c"]


@pytest.mark.parametrize("eagerly", [False, True])
def test_batches_left_on_the_host_are_numpy_and_run_the_same(eagerly: bool) -> None:
    strategy = mirrored(2)
    options = dl.InputOptions(experimental_fetch_to_device=False)
    sums = []
    for x in strategy.experimental_distribute_dataset(numbers(5, 4), options):
        assert all(isinstance(part, np.ndarray) for part in x.values)
        doubled = strategy.run(
            lambda v: v.sum() * 2, args=(x,), options=dl.RunOptions(run_eagerly=eagerly)
        )
        sums.append(local(strategy, doubled))
    assert sums == [[2, 10], [8, 0]]
