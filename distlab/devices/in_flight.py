"""Limits the number of dispatched steps that the devices have not finished.

CPU devices deadlock permanently when many steps with collectives are queued:
each step needs a thread on every device, and steps that wait for one another
can occupy all threads. A limit of 16 costs no throughput.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

import jax

LIMIT: Final = 16
"""The maximum number of steps in flight in this process."""

dispatching = threading.RLock()
"""Held while a step is dispatched: two threads that dispatch steps with collectives
to the same devices in different orders would deadlock."""

_waiting: deque[jax.Array] = deque()


def admit(result: jax.Array) -> None:
    """Counts a step as in flight, and waits for the older half when the limit is exceeded.

    Args:
      result: An output of the step, preferably the smallest: it stays in memory until
        the step leaves the queue.
    """
    _waiting.append(result)
    if len(_waiting) <= LIMIT:
        return
    # Waiting for the newest first wakes this thread once instead of eight times.
    for older in reversed([_waiting.popleft() for _ in range(LIMIT // 2)]):
        # A donated result is deleted; the step that reuses its memory is later in the queue.
        if not older.is_deleted():
            older.block_until_ready()


def waiting() -> list[jax.Array]:
    """Returns the results of the steps in flight, the oldest first."""
    return list(_waiting)
