"""Steps between two windows: when one is dispatched, the caller asks whether those before are done.

That costs the caller some microseconds and wakes no thread. The end of a step lies between two
calls then; the usual durations, which windows measure, place it there.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Final

import jax

from distlab.devices import jax_internals

_MOST: Final = 2_000
"""The most steps of one gap that are kept."""

_KEEP_EVERY_NS: Final = 5_000_000
"""The age at which the kept one of short steps is replaced: keeping one costs 4 us."""


class Glance:
    """What is known of one step.

    Attributes:
      step: Number of the step.
      start_ns: Monotonic time at which it was called.
      result: One of its outputs, until it was seen done.
      unready_ns: When it was last seen not done, at first `start_ns`.
      ready_ns: When it was first seen done, 0 before.
      donated: Whether the result was donated to a later step by then.
    """

    __slots__ = ("donated", "ready_ns", "result", "start_ns", "step", "unready_ns")

    def __init__(self, step: int, start_ns: int, result: jax.Array) -> None:
        self.step = step
        self.start_ns = self.unready_ns = start_ns
        self.result: jax.Array | None = result
        self.ready_ns = 0
        self.donated = False

    def finish(self, now_ns: int) -> bool:
        """Returns whether the step is done, and lets go of its result then."""
        if self.result is None:
            return True
        try:
            if not jax_internals.is_ready(self.result):
                return False
        except RuntimeError:  # "Array has been deleted"
            self.donated = True
        self.ready_ns, self.result = now_ns, None
        return True


class Glances:
    """The steps of one strategy between two windows.

    Attributes:
      whole: False where a step was not noted.
    """

    def __init__(self) -> None:
        self.whole = True
        self._done: list[Glance] = []
        self._in_flight: deque[Glance] = deque()
        self._lock = threading.Lock()

    @property
    def newest(self) -> jax.Array | None:
        """An output of the newest step; None before the first."""
        return self._in_flight[-1].result if self._in_flight else None

    @property
    def steps(self) -> list[Glance]:
        """All steps, oldest first. Those in flight at the last call come last."""
        return [*self._done, *self._in_flight]

    def note(self, step: int, start_ns: int, result: jax.Array) -> None:
        """Notes a step, and which of those before are done."""
        if len(self._done) >= _MOST or not self._lock.acquire(blocking=False):
            self.whole = False  # another thread's step is being noted
            return
        try:
            now_ns = time.monotonic_ns()
            in_flight = self._in_flight
            while in_flight and in_flight[0].finish(now_ns):
                self._done.append(in_flight.popleft())
            if in_flight:
                in_flight[0].unready_ns = now_ns
            in_flight.append(Glance(step, start_ns, jax_internals.for_another_thread(result)))
        except RuntimeError:
            self.whole = False
            raise
        finally:
            self._lock.release()

    def keep_newest(self, step: int, start_ns: int, result: jax.Array) -> None:
        """Keeps one step of the last milliseconds, which may be in flight when a window opens.

        For steps that are so short that noting each would cost too much.
        """
        self.whole = False
        kept = self._in_flight
        if not kept or start_ns - kept[-1].start_ns > _KEEP_EVERY_NS:
            self._done.clear()
            kept.append(Glance(step, start_ns, jax_internals.for_another_thread(result)))
            while len(kept) > 1:
                kept.popleft()
