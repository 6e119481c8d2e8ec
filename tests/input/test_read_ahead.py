"""experimental_per_replica_buffer_size: batches read and placed ahead in a thread."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distlab as dl
from distlab import events
from tests.input.feeding import local, mirrored, numbers, steps
from tests.listening import listening
from tests.patience import LIMIT_SECONDS, wait_until


def _ahead(dataset: Any, size: int = 3) -> tuple[dl.MirroredStrategy, Any]:
    strategy = mirrored(2)
    options = dl.InputOptions(experimental_per_replica_buffer_size=size)
    return strategy, strategy.experimental_distribute_dataset(dataset, options)


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "distlab-prefetch"}


def test_elements_are_same_in_every_epoch_and_stay_at_end() -> None:
    strategy, distributed = _ahead(numbers(11, 4))
    expected = [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10]]]
    assert [steps(strategy, distributed) for _ in range(2)] == [expected, expected]
    iterator = iter(distributed)
    list(iterator)
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(iterator)


def test_as_many_as_asked_for_are_read_and_no_more() -> None:
    read: list[int] = []

    class Batches:
        def __iter__(self) -> Iterator[Any]:
            for i in range(100):
                read.append(i)
                yield np.full(2, i)

    strategy, distributed = _ahead(Batches(), 3)
    iterator = iter(distributed)
    assert read == []
    assert local(strategy, next(iterator)) == [[0], [0]]
    wait_until(lambda: len(read) == 5)  # one returned, three ready, one waiting for room
    assert local(strategy, next(iterator)) == [[1], [1]]
    wait_until(lambda: len(read) == 6)
    iterator.close()


def test_position_is_that_of_element_taken_and_not_of_thread() -> None:
    strategy, distributed = _ahead(numbers(20, 2))
    iterator = iter(distributed)
    next(iterator)
    position = iterator.state()
    rest = steps(strategy, iterator)
    iterator.restore(position)
    assert steps(strategy, iterator) == rest
    assert rest[0] == [[2], [3]]


def test_dropping_or_closing_an_iterator_ends_its_thread() -> None:
    before = _threads()
    _, distributed = _ahead(numbers(1000, 2))
    iterator = iter(distributed)
    next(iterator)
    closed = iter(distributed)
    next(closed)
    assert len(_threads() - before) == 2
    closed.close()
    with pytest.raises(StopIteration):
        next(closed)
    del iterator
    gc.collect()
    wait_until(lambda: _threads() <= before)


def test_events_say_what_the_caller_waited_for() -> None:
    ready = threading.Event()

    class Batches:
        def __iter__(self) -> Iterator[Any]:
            yield np.arange(4)
            yield np.arange(4)
            ready.set()

    _, distributed = _ahead(Batches())
    with listening() as heard:
        iterator = iter(distributed)
        next(iterator)
        assert ready.wait(LIMIT_SECONDS)
        next(iterator)
    first, second = heard.of(events.Sharding)
    assert (first.batch, second.batch, first.sizes) == (0, 1, [2, 2])
    assert first.transfer_ns == second.transfer_ns == 0
    assert first.wait_ns > 0
    assert second.wait_ns > 0
