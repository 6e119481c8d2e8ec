"""Whether an array has been computed, asked without waiting for it."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from distlab.devices import jax_internals
from distlab.devices.jax_internals import is_ready


class WatchedStep:
    """A step that was handed to the devices, and when each was seen to be done.

    Args:
      step: number of the step.
      start_ns: monotonic time at which it was handed over.
      result: one of its outputs.
      devices: how many devices it lies on.

    Attributes:
      step: number of the step.
      start_ns: monotonic time at which it was handed over.
      unready_ns: when each device was last seen not to be done, at first `start_ns`.
      ready_ns: when each device was first seen to be done, 0 before.
      donated: true when the result was given to a later step before it was
        seen to be ready: then `ready_ns` says when that was noticed.
    """

    def __init__(self, step: int, start_ns: int, result: jax.Array, devices: int) -> None:
        self.step = step
        self.start_ns = start_ns
        self.unready_ns = [start_ns] * devices
        self.ready_ns = [0] * devices
        self.donated = False
        self._result = result

    def look(self, now_ns: int, before: Sequence[int] | None = None) -> bool:
        """Asks the devices that were not done; says whether all are now.

        Args:
          now_ns: monotonic time just before the call.
          before: `ready_ns` of the step before: a device that is not done with
            that one need not be asked. None asks all.
        """
        try:
            if (before is None or all(before)) and is_ready(self._result):
                self._all_ready(now_ns)
                return True
            for place, piece in enumerate(jax_internals.pieces(self._result)):
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
