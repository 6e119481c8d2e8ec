"""num_parallel_calls of map and interleave: threads, and the order of one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from distlab.data import AUTOTUNE, Dataset
from tests import own_process
from tests.data.models import lists

LIMIT_SECONDS = 60


def test_calls_run_at_the_same_time_and_results_come_in_order() -> None:
    meeting = threading.Barrier(3)

    def meet(x: Any) -> Any:
        meeting.wait(LIMIT_SECONDS)  # only passes when three calls are under way
        return x

    assert lists(Dataset.range(9).map(meet, num_parallel_calls=3)) == list(range(9))


def test_datasets_are_read_at_once_and_results_come_in_order() -> None:
    meeting = threading.Barrier(2)

    def meet(x: Any) -> Any:
        meeting.wait(LIMIT_SECONDS)
        return x

    def part(n: Any) -> Dataset:
        return Dataset.range(10 * n, 10 * n + 4).map(meet)

    found = Dataset.range(2).interleave(part, cycle_length=2, num_parallel_calls=2)
    assert lists(found) == [0, 10, 1, 11, 2, 12, 3, 13]


_clock = [0.0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that calls take, whatever else the machine does."""
    watch = SimpleNamespace(perf_counter=lambda: _clock[0])
    monkeypatch.setattr("distlab.data.plan.parallel.time", watch)


def _slow(x: Any) -> Any:
    _clock[0] += 0.002
    return threading.current_thread().name, x


def _quick(x: Any) -> Any:
    return threading.current_thread().name, x


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(("function", "own_thread"), [(_slow, False), (_quick, True)])
def test_autotune_uses_threads_where_calls_take_long(
    function: Callable[[Any], Any], own_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distlab.data.plan.parallel.cores", lambda: 4)
    pairs = list(Dataset.range(200).map(function, num_parallel_calls=AUTOTUNE))
    assert [int(x) for _, x in pairs] == list(range(200))
    here = threading.current_thread().name.encode()
    assert ({name for name, _ in pairs} == {here}) == own_thread


@pytest.mark.usefixtures("clock")
def test_autotune_reads_slow_datasets_ahead() -> None:
    def part(n: Any) -> Dataset:
        return Dataset.range(10 * n, 10 * n + 3).map(_slow)

    found = Dataset.range(8).interleave(part, 2, num_parallel_calls=AUTOTUNE)
    expected = Dataset.range(8).interleave(part, 2)
    assert [int(x) for _, x in found] == [int(x) for _, x in expected]
    assert any(name.startswith(b"distlab-prefetch") for name, _ in found)


def test_an_error_comes_in_its_turn_and_the_rest_can_be_read() -> None:
    iterator = iter(Dataset.range(6).map(lambda x: 6 // int(x - 2), num_parallel_calls=3))
    assert [int(next(iterator)) for _ in range(2)] == [-3, -6]
    with pytest.raises(ZeroDivisionError):
        next(iterator)
    assert [int(x) for x in iterator] == [6, 3, 2]


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("distlab-map")}


@pytest.mark.parametrize("end", [list, lambda iterator: iterator.close()])
def test_threads_end_with_the_iteration(end: Callable[[Any], Any]) -> None:
    before = _threads()
    iterator = iter(Dataset.range(9).map(_quick, num_parallel_calls=3))
    next(iterator)
    started = _threads() - before
    assert started
    end(iterator)
    for thread in started:
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()


FORKED = """
import os
from distlab.data import Dataset
from distlab.errors import ContextError

dataset = Dataset.range(100).map(lambda x: x + 1, num_parallel_calls=2).batch(2)
iterator = iter(dataset)
next(iterator)
child = os.fork()
if child == 0:
    for _ in range(2):  # it goes on to be refused
        try:
            print(next(iterator), flush=True)
        except ContextError as error:
            print(error, flush=True)
    print(next(iter(dataset)), flush=True)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(next(iterator))
"""


def test_a_forked_child_must_make_the_iterator_itself() -> None:
    done = own_process.run(FORKED, seconds=60)
    *refused, anew, parents = done.stdout.splitlines()
    assert len(refused) == 2
    assert all("Make the iterator in the child: iter(dataset)" in line for line in refused)
    assert (anew, parents) == ("[1 2]", "[3 4]"), done.stderr
