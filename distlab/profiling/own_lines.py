"""Which lines of the program run while its devices have nothing to do.

The watcher's thread looks now and then at the stack of the thread that calls `run`, when no step
is in flight. A look takes some microseconds, and none is taken while devices work.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from distlab.devices.thread_frames import frames_of
from distlab.events import Event, OwnPython
from distlab.user_code import line_text, part_of

_DEEPEST: Final = 12
"""The most lines of a stack that are kept: the innermost ones."""

_MOST_STACKS: Final = 20
_MOST_OF_ONE_NS: Final = 50_000_000
"""The most time that one look stands for, where the one before found nothing of the program: most
of a longer time may have passed in distlab's calls, of which some keep Python's lock."""

_REPORT_NS: Final = 1_000_000_000
_DISTLAB: Final = Path(__file__).parents[1]


class OwnLines:
    """Adds up the time of each stack of the program's own Python.

    Args:
      emit: Receives the `OwnPython` events.
    """

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._thread = 0
        self._calls: set[str] = set()
        self._spent: Counter[str] = Counter()
        self._seen: str | None = None
        self._seen_ns = 0
        self._reported_ns = 0

    def note_call(self, now_ns: int) -> None:
        """Notes which lines call `run`; their thread calls this."""
        self._thread = threading.get_ident()
        self._reported_ns = self._reported_ns or now_ns
        if len(self._calls) < _MOST_STACKS:
            self._calls.add(" > ".join(_lines(_callers(sys._getframe(1)))))

    def look(self, now_ns: int, *, idle: bool) -> None:
        """Looks where the thread is."""
        stack = own_stack(frames_of(self._thread)) if idle and self._thread else None
        half = (now_ns - self._seen_ns) // 2 if self._seen_ns else 0
        if (self._seen is None) != (stack is None):
            half = min(half, _MOST_OF_ONE_NS)
        for one in (self._seen, stack):
            if one is not None and half and (one in self._spent or len(self._spent) < 1_000):
                self._spent[one] += half
        self._seen, self._seen_ns = stack, now_ns

    def report(self, now_ns: int, *, whole: bool = False) -> None:
        """Emits what was seen, once a second."""
        if not self._spent or not (whole or now_ns - self._reported_ns >= _REPORT_NS):
            return
        self._emit(
            OwnPython(
                time_ns=now_ns,
                start_ns=self._reported_ns,
                stacks=dict(self._spent.most_common(_MOST_STACKS)),
                calls=sorted(self._calls),
            )
        )
        self._spent.clear()
        self._calls.clear()
        self._reported_ns = now_ns


def own_stack(frames: Sequence[FrameType]) -> str | None:
    """Returns the lines of the program that a thread is at; None in distlab's calls."""
    compiles = False
    for depth, frame in enumerate(frames):
        part = part_of(frame)
        if part == "distlab":
            return None
        if part == "user":
            lines = _lines(frames[depth:])
            if lines and compiles:
                lines.append(OwnPython.COMPILES)
            return " > ".join(lines) or None
        compiles = compiles or part == "compiler"
    return None


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    """Yields a frame of the calling thread and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _lines(frames: Iterable[FrameType]) -> list[str]:
    """Returns the program's lines, outermost first; none of code that distlab calls for input."""
    lines: list[str] = []
    for frame in frames:
        code = frame.f_code
        part = part_of(frame)
        if part == "user" and len(lines) < _DEEPEST:
            lines.append(line_text(code.co_filename, frame.f_lineno))
        elif part == "distlab" and lines and _is_input(code.co_filename):
            return []
    return lines[::-1]


@functools.lru_cache(4096)
def _is_input(filename: str) -> bool:
    return Path(filename).relative_to(_DISTLAB).parts[0] in {"data", "input", "step"}
