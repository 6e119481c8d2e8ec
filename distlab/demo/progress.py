"""One line of progress: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import shutil
import time
from collections import deque
from typing import Any, TextIO

REDRAW_SECONDS = 0.1
LOG_SECONDS = 2.0
RATE_SECONDS = 5.0
LOG_WIDTH = 100
WIDEST_BAR = 30
SMALLEST_BAR = 5


class Progress:
    """Prints the progress of training, at most ten times a second.

    On a terminal it redraws one line; elsewhere it prints a line every two
    seconds, without control characters. The rate is that of the last five
    seconds, so that compilations at the beginning do not distort the estimate.
    """

    def __init__(self, total: int, stream: TextIO) -> None:
        self._total = total
        self._stream = stream
        self._redraws = stream.isatty()
        self._pause = REDRAW_SECONDS if self._redraws else LOG_SECONDS
        self._next = 0.0
        self._recent: deque[tuple[float, int]] = deque()

    def __call__(self, done: int, loss: Any) -> None:
        """Shows `done` steps; reads `loss` (which may wait for it) only to print it."""
        now = time.monotonic()
        if now < self._next and done < self._total:
            return
        self._next = now + self._pause
        value = float(loss)
        self._print(done, self._rate(time.monotonic(), done), value)
        if done == self._total and self._redraws:
            self._stream.write("\n")
            self._stream.flush()

    def _rate(self, now: float, done: int) -> float:
        """Returns steps per second since the oldest recent line, 0 without one."""
        while len(self._recent) > 1 and now - self._recent[1][0] >= RATE_SECONDS:
            self._recent.popleft()
        self._recent.append((now, done))
        then, before = self._recent[0]
        return (done - before) / (now - then) if now > then else 0.0

    def _print(self, done: int, rate: float, loss: float) -> None:
        if self._redraws:
            width = shutil.get_terminal_size().columns - 1
            text = line(done, self._total, rate, loss, width)
            self._stream.write(f"\r{text[:width]:<{width}}")
        else:
            self._stream.write(f"{line(done, self._total, rate, loss)}\n")
        self._stream.flush()


def line(done: int, total: int, rate: float, loss: float, width: int = LOG_WIDTH) -> str:
    """Returns a line of progress."""
    left = f"ETA {clock((total - done) / rate)}" if rate > 0 else "ETA --:--"
    numbers = (
        f"{100 * done // total:3d}%  step {done:,}/{total:,}  "
        f"{rate:.1f} steps/s  {left}  loss {loss:.4f}"
    )
    room = min(WIDEST_BAR, width - len(numbers) - len("[] "))
    if room < SMALLEST_BAR:
        return numbers
    filled = room * done // total
    return f"[{'#' * filled}{'-' * (room - filled)}] {numbers}"


def clock(seconds: float) -> str:
    """Returns a duration as minutes and seconds, with hours if there are any."""
    minutes, whole = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{whole:02d}" if hours else f"{minutes:02d}:{whole:02d}"
