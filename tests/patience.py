"""Waiting for conditions, and measuring on a machine that others use as well."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, ParamSpec, TypeVar

import pytest

LIMIT_SECONDS: Final = 60
MOST_TAKEN: Final = 0.55
"""The share of the machine that others may take from a measurement that counts.

The other half of the tests takes one core of two."""

_COUNTED: Final = 4
_TRIED: Final = 16
_STAT: Final = Path("/proc/stat")

P = ParamSpec("P")
T = TypeVar("T")


def wait_until(
    holds: Callable[[], bool], what: str = "a condition", pause_seconds: float = 0.01
) -> None:
    """Waits until something holds, with a limit."""
    end = time.monotonic() + LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < end, f"waited too long for {what}"
        threading.Event().wait(pause_seconds)


def interrupt(waits: Callable[[], object]) -> None:
    """Calls a function that waits, in the main thread, and interrupts it."""
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            waits()
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def interrupt_at_second_call(name: str, function: Callable[[], object]) -> None:
    """Calls a function, and interrupts it where it calls one of a name for the second time."""
    calls = 0

    def interrupted(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_name == name
        if calls == 2:
            sys.setprofile(None)
            raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            function()
    finally:
        sys.setprofile(before)


def attempts() -> Iterator[int]:
    """Numbers the attempts of a test of times: four, not counting those that others disturbed.

    Whatever else runs on this machine takes the cores from a test now and then. At most sixteen
    are made.
    """
    counted = 0
    for number in range(_TRIED):
        begun, own, all_used = time.monotonic(), _own_seconds(), _used_seconds()
        yield number
        taken = _used_seconds() - all_used - (_own_seconds() - own)
        room = (time.monotonic() - begun) * (os.cpu_count() or 1)
        counted += taken <= MOST_TAKEN * room
        if counted == _COUNTED:
            return


def measured(test: Callable[P, None]) -> Callable[P, None]:
    """A test of times, which passes if one of its `attempts` does."""

    @functools.wraps(test)
    def attempt(*args: P.args, **kwargs: P.kwargs) -> None:
        failed = AssertionError()
        for _ in attempts():
            try:
                return test(*args, **kwargs)
            except AssertionError as error:
                failed = error
        raise failed

    return attempt


def only(found: Sequence[T]) -> T:
    """Returns the one thing that was found; another attempt of a measured test may find it."""
    assert len(found) == 1, found
    return found[0]


def _own_seconds() -> float:
    """The processor time of this process and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _used_seconds() -> float:
    """The processor time that all processes of this machine have used; 0 where it does not say."""
    if not _STAT.exists():
        return 0.0
    numbers = _STAT.read_text().partition("\n")[0].split()[1:]
    idle, waiting = 3, 4
    used = [int(n) for place, n in enumerate(numbers[:8]) if place not in (idle, waiting)]
    return sum(used) / os.sysconf("SC_CLK_TCK")
