"""prefetch: bounded, stops when dropped, brings errors, never hangs."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from distlab.data import Dataset
from tests.patience import LIMIT_SECONDS, wait_until


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "distlab-prefetch"}


def test_it_reads_ahead_but_not_further_than_its_buffer() -> None:
    made: list[int] = []

    def record(x: Any) -> Any:
        made.append(int(x))
        return x

    iterator = iter(Dataset.range(100).map(record).prefetch(3))
    assert next(iterator) == 0
    # One was taken, three are in the buffer, one waits for a place in it.
    wait_until(lambda: len(made) == 5)
    assert next(iterator) == 1
    wait_until(lambda: len(made) == 6)
    iterator.close()


def test_the_thread_stops_when_the_iterator_is_dropped() -> None:
    before = _threads()
    iterator = iter(Dataset.range(10**9).batch(2).prefetch(2))
    next(iterator)
    assert len(_threads() - before) == 1
    del iterator
    gc.collect()
    wait_until(lambda: _threads() <= before)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_errors_reach_consumer_after_elements_before_them(
    error: type[BaseException],
) -> None:
    def fail_at_two(x: Any) -> Any:
        if x == 2:
            raise error("two")
        return x

    iterator = iter(Dataset.range(5).map(fail_at_two).prefetch(10))
    assert [next(iterator), next(iterator)] == [0, 1]
    with pytest.raises(error, match="two"):
        next(iterator)


def test_dropping_does_not_wait_for_a_stuck_source() -> None:
    before = _threads()
    release = threading.Event()

    def stuck() -> Iterator[int]:
        yield 1
        release.wait(LIMIT_SECONDS)

    iterator = iter(Dataset.from_generator(stuck).prefetch(2))
    assert next(iterator) == 1
    start = time.monotonic()
    del iterator
    gc.collect()
    assert time.monotonic() - start < LIMIT_SECONDS / 2
    release.set()
    wait_until(lambda: _threads() <= before)


def test_the_interpreter_exits_whatever_the_thread_does() -> None:
    program = (
        "import threading\n"
        "from distlab.data import Dataset\n"
        "def source():\n"
        "    yield from range(3)\n"
        "    threading.Event().wait()\n"
        "iterator = iter(Dataset.from_generator(source).prefetch(2))\n"
        "busy = iter(Dataset.range(10**9).batch(2).prefetch(2))\n"
        "next(iterator), next(busy)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_interrupted_start_leaves_no_thread_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = _threads()
    start = threading.Thread.start
    interrupts: list[bool] = []

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if interrupts:
            interrupts.pop()
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    for ending in ("read on", "close"):
        iterator = iter(Dataset.range(100).map(lambda x: x).prefetch(2))
        interrupts.append(True)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        if ending == "read on":
            assert list(iterator) == [*range(100)]
        else:
            iterator.close()
        wait_until(lambda: _threads() <= before)
