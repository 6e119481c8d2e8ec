"""Sampling of the program's own lines while its devices have nothing to do.

The watcher's thread reads the stack of the thread that calls `run` now and then, when no step is
in flight. A sample takes some microseconds, and none is taken while devices work.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterable
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
"""The most time that one sample stands for, where the one before found nothing of the program: most
of a longer time may have passed in distlab's calls, of which some keep Python's lock."""

_REPORT_NS: Final = 1_000_000_000
_CALLS: Final = ("run", "__call__")
"""The functions that make a step: those of a strategy, and of what `observe` returned."""

_DISTLAB: Final = Path(__file__).parents[1]


class OwnLines:
    """The time of each stack of the program's own Python, in the `thread` that calls `run`."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self.thread = 0
        self._emit = emit
        self._calls: dict[str, None] = {}
        self._spent: Counter[str] = Counter()
        self._seen: str | None = None
        self._seen_ns = 0
        self._reported_ns = 0

    def note_call(self) -> None:
        """Notes the lines that call `run`, when a program was compiled in their thread."""
        self._add_call(_lines(frames_of(threading.get_ident())))

    def look(self, now_ns: int, *, idle: bool) -> None:
        """Takes a sample."""
        self._reported_ns = self._reported_ns or now_ns
        stack = self._sample() if idle and self.thread else None
        half = (now_ns - self._seen_ns) // 2 if self._seen_ns else 0
        if (self._seen is None) != (stack is None):
            half = min(half, _MOST_OF_ONE_NS)
        for one in (self._seen, stack):
            if one is not None and half and (one in self._spent or len(self._spent) < 1_000):
                self._spent[one] += half
        self._seen, self._seen_ns = stack, now_ns

    def report(self, now_ns: int, *, whole: bool = False) -> None:
        """Emits what was found, once a second."""
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
        self._reported_ns = now_ns

    def _sample(self) -> str | None:
        """Returns the program's lines, None in distlab's calls; notes those that call `run`."""
        frames = frames_of(self.thread)
        called: FrameType | None = None  # distlab's function that the program called
        compiles = False
        for depth, frame in enumerate(frames):
            part = part_of(frame)
            if part == "distlab":
                called = frame
            elif part == "user":
                lines = _lines(frames[depth:])
                if called is not None and not _is_saving(called.f_code.co_filename):
                    if any(_makes_steps(one) for one in frames):
                        self._add_call(lines)
                    return None
                if lines and compiles:
                    lines.append(OwnPython.COMPILES)
                return " > ".join(lines) or None
            compiles = compiles or part == "compiler"
        return None

    def _add_call(self, lines: list[str]) -> None:
        if lines:
            self._calls.setdefault(" > ".join(lines))
        if len(self._calls) > _MOST_STACKS:
            del self._calls[next(iter(self._calls))]


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


def _makes_steps(frame: FrameType) -> bool:
    return frame.f_code.co_name in _CALLS and part_of(frame) == "distlab"


@functools.lru_cache(4096)
def _is_saving(filename: str) -> bool:
    """Returns whether distlab's code saves checkpoints: no event has the time of that."""
    return Path(filename).relative_to(_DISTLAB).parts[:2] == ("integrations", "orbax")


@functools.lru_cache(4096)
def _is_input(filename: str) -> bool:
    return Path(filename).relative_to(_DISTLAB).parts[0] in {"data", "input", "observing", "step"}
