"""Ctrl-C at any moment of reading a dataset: the next batch begins where the last one ended."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

import distlab as dl
from distlab.data import Dataset
from distlab.errors import OneShotError
from tests.input.feeding import local, mirrored

_PIPELINES: dict[str, Callable[[], Dataset]] = {
    "positions": lambda: Dataset.range(12).shuffle(5, seed=1).batch(4),
    "values": lambda: Dataset.range(12).map(lambda x: x + 1).shuffle(5, seed=1).batch(4),
    "filter": lambda: Dataset.range(24).filter(lambda x: x % 2 == 0).batch(4),
    "unbatch": lambda: Dataset.range(12).batch(5).map(lambda x: x).unbatch().batch(4),
    "interleave": lambda: (
        Dataset.range(3).interleave(lambda x: Dataset.range(x, x + 4), cycle_length=2).batch(4)
    ),
}


def _interrupted_at(call: int, work: Callable[[], Any]) -> bool:
    """Calls `work` with an interrupt at one of the calls it makes; returns whether it came."""
    left, came = call, False

    def trace(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal left, came
        left -= 1
        if left < 0:
            sys.settrace(None)
            came = True
            raise KeyboardInterrupt

    before = sys.gettrace()
    with _ignored_in_finalisers():
        sys.settrace(trace)
        try:
            work()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
    return came


@contextlib.contextmanager
def _ignored_in_finalisers() -> Iterator[None]:
    """Says nothing of interrupts in finalisers and callbacks of weak references.

    Python ignores what is raised there.
    """
    told = sys.unraisablehook

    def unless_interrupt(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            told(unraisable)

    sys.unraisablehook = unless_interrupt
    try:
        yield
    finally:
        sys.unraisablehook = told


@pytest.mark.slow
@pytest.mark.parametrize(("pipeline", "ahead"), [("values", 0), ("unbatch", 3)])
def test_interrupted_batch_of_replicas_is_read_anew(pipeline: str, ahead: int) -> None:
    strategy = mirrored(2)
    options = dl.InputOptions(experimental_per_replica_buffer_size=ahead)
    distributed = strategy.experimental_distribute_dataset(_PIPELINES[pipeline](), options)
    expected = [np.concatenate(local(strategy, x)).tolist() for x in _same(distributed)]
    assert len(expected) == 3
    call = 1
    while True:
        iterator = _same(distributed)
        got = [next(iterator)]
        came = _interrupted_at(call, lambda: got.append(next(iterator)))  # noqa: B023
        place = iterator.state()
        if call % 2:
            iterator.restore(place)
        batches = got + list(iterator)
        assert [np.concatenate(local(strategy, x)).tolist() for x in batches] == expected, call
        if not came:
            break
        call += 1
    assert call > 6


def _same(distributed: Any) -> Any:
    """Returns an iterator over the first epoch, whichever number this one has."""
    iterator = iter(distributed)
    state = iterator.state()
    for each in state["reader"]["shuffles"]:
        each[1] = 0
    iterator.restore(state)
    return iterator


@pytest.mark.parametrize("pipeline", _PIPELINES.values(), ids=_PIPELINES)
def test_interrupted_element_is_read_anew(pipeline: Callable[[], Dataset]) -> None:
    dataset = pipeline()
    for call in range(0, 60, 2):
        iterator = iter(dataset)
        start = iterator.state()
        expected = [x.tolist() for x in iterator]
        iterator.restore(start)
        got = [next(iterator)]
        _interrupted_at(call, lambda: got.append(next(iterator)))  # noqa: B023
        assert [x.tolist() for x in [*got, *iterator]] == expected, call


def test_generator_ended_by_an_interrupt_is_named_and_restored() -> None:
    interrupted = False

    def examples() -> Iterator[np.float32]:
        nonlocal interrupted
        for number in range(8):
            if number == 3 and not interrupted:
                interrupted = True
                raise KeyboardInterrupt
            yield np.float32(number)

    dataset = Dataset.from_generator(examples, output_types=np.float32).batch(2)
    strategy = mirrored(2)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    got = [local(strategy, next(iterator))]
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    place = iterator.state()
    for _ in range(2):
        with pytest.raises(OneShotError, match="An interrupt came while element 3 was read"):
            next(iterator)
    iterator.restore(place)
    got += [local(strategy, x) for x in iterator]
    assert got == [[[0], [1]], [[2], [3]], [[4], [5]], [[6], [7]]]


def test_generator_goes_on_after_an_interrupt() -> None:
    calls = 0

    def numbers() -> Iterator[int]:
        nonlocal calls
        calls += 1
        yield from range(6)

    refuses = [4]

    def refuse(x: Any) -> Any:
        if x in refuses:
            refuses.clear()
            raise KeyboardInterrupt
        return x

    iterator = iter(Dataset.from_generator(numbers, output_types=np.int32).map(refuse))
    assert [int(next(iterator)) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert [int(x) for x in iterator] == [5]
    assert calls == 1
