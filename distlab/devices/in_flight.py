"""Bounds how many steps the devices have been handed and not finished.

CPU devices deadlock for good when many steps with collectives wait at once:
each step needs a thread on every device to get through, and steps that wait
for one another can hold them all. Sixteen in flight cost no throughput.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

import jax

LIMIT: Final = 16
"""The most steps in flight in this process."""

dispatching = threading.RLock()
"""Held while a step is handed over: two threads that hand steps with collectives
to the same devices in different orders would make them wait for each other."""

_waiting: deque[jax.Array] = deque()


def admit(result: jax.Array) -> None:
    """Counts a step as in flight; waits for the older half when there are too many.

    Args:
      result: one output of the step, the smaller the better: it is kept until
        the step has left the queue.
    """
    _waiting.append(result)
    if len(_waiting) <= LIMIT:
        return
    # The last of them first: then this thread is woken up once, and not for each.
    for older in reversed([_waiting.popleft() for _ in range(LIMIT // 2)]):
        # A result that the user gave away (donated) is gone; what took it over comes later.
        if not older.is_deleted():
            older.block_until_ready()


def waiting() -> list[jax.Array]:
    """Returns what is waited for, the oldest first."""
    return list(_waiting)
