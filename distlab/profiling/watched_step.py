"""A step in flight, polled without waiting for its result."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from distlab.devices.jax_internals import is_ready
from distlab.devices.pieces import pieces


class WatchedStep:
    """A step that was dispatched, and the times at which each device finished it.

    Args:
      step: Number of the step.
      start_ns: Monotonic time at which it was dispatched.
      result: One of its outputs.
      devices: Number of this process's devices of the result.

    Attributes:
      step: Number of the step.
      start_ns: Monotonic time at which it was dispatched.
      unready_ns: Time of the last poll at which each device was not done, at first
        `start_ns`.
      ready_ns: Time of the first poll at which each device was done, 0 before.
      donated: True when the result was donated to a later step before a poll found
        it ready: then `ready_ns` is the time of the poll that found it donated.
    """

    def __init__(self, step: int, start_ns: int, result: jax.Array, devices: int) -> None:
        self.step = step
        self.start_ns = start_ns
        self.unready_ns = [start_ns] * devices
        self.ready_ns = [0] * devices
        self.donated = False
        self._result = result

    def poll(self, now_ns: int, before: Sequence[int] | None = None) -> bool:
        """Polls the devices that were not done; returns whether all are now."""
        try:
            if (before is None or all(before)) and is_ready(self._result):
                self._all_ready(now_ns)
                return True
            for place, (_, piece) in enumerate(pieces(self._result)):
                if self.ready_ns[place] or (before is not None and not before[place]):
                    continue
                if is_ready(piece):
                    self.ready_ns[place] = now_ns
                else:
                    self.unready_ns[place] = now_ns
        except RuntimeError:  # "Array has been deleted"
            self.donated = True
            self._all_ready(now_ns)
        return all(self.ready_ns)

    def _all_ready(self, now_ns: int) -> None:
        self.ready_ns = [ready or now_ns for ready in self.ready_ns]
