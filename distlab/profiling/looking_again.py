"""When the next of the recorder's captures is due.

Each capture costs processor time, of which captures may take a small share in the long run. One
profile of some steps does not tell a slow replica from one that lost its core for a moment. So
some captures come early, and the share is paid back later: where a replica seems slow, and where
the steps have become slower.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from distlab.events import Capture

_SHARE: Final = 0.01
"""The share of the time that captures may take."""

_SHORTEST_SECONDS: Final = 1.0
_EARLY_SECONDS: Final = 0.5
"""The shortest time from one capture to the next that comes early."""

_MOST_EARLY: Final = 5
"""Captures in a row that come early."""

_MOST_WHERE_SLOWER: Final = 2
"""Those of them that slower steps call for: on a busy machine steps often become slower."""

_ALIKE: Final = 4
"""Captures in a row that tell the same replica; one more would tell nothing new."""

_LONGER: Final = 1.4
_WAITS_LESS: Final = 0.5
_SLOWER: Final = 0.75
"""The rate of the steps, as a share of the highest one since the last capture, that is slower."""

_RATE_SECONDS: Final = 0.8
"""The time over which the rate of the steps counts."""


class LookingAgain:
    """The times of captures, and what calls for one early."""

    def __init__(self) -> None:
        self._taken_s = 0.0
        self._due_s = 0.0
        self._early = 0
        self._slow: int | None = None
        self._alike = 0
        self._is_chance = False
        self._seen: deque[tuple[float, int]] = deque()
        self._rate = self._highest = 0.0

    def taken(self, now_s: float, cost_s: float, capture: Capture | None) -> None:
        """Notes a capture."""
        early = now_s < self._due_s
        self._early = self._early + 1 if early else 0
        rest = max(cost_s / _SHARE, _SHORTEST_SECONDS)
        self._due_s = (self._due_s if early else now_s) + rest
        self._taken_s = now_s
        slow = None if capture is None else seems_slow(capture)
        # Another one than before: which is longest is chance.
        self._alike = 0 if slow is None else self._alike + 1 if slow == self._slow else 1
        self._is_chance = early and self._slow is not None and slow != self._slow
        self._slow = slow
        self._highest = self._rate
        self._seen.clear()

    def is_due(self, now_s: float, step: int) -> bool:
        """Returns whether to take a capture now; to be asked several times a second."""
        moves = self._see(now_s, step)
        if now_s >= self._due_s:
            return True
        if self._early >= _MOST_EARLY or now_s < self._taken_s + _EARLY_SECONDS:
            return False
        doubtful = 0 < self._alike < _ALIKE and not self._is_chance
        slower = self._rate < _SLOWER * self._highest and self._early < _MOST_WHERE_SLOWER
        return moves and (doubtful or slower)

    def _see(self, now_s: float, step: int) -> bool:
        """Notes how fast the steps are; returns whether there was one since it was called last."""
        moves = bool(self._seen) and step > self._seen[-1][1]
        self._seen.append((now_s, step))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - _RATE_SECONDS:
            self._seen.popleft()
        since_s, first = self._seen[0]
        if now_s - since_s >= _RATE_SECONDS:
            self._rate = (step - first) / (now_s - since_s)
            self._highest = max(self._highest, self._rate)
        return moves


def seems_slow(capture: Capture) -> int | None:
    """Returns the replica that computes longest while the others wait, if any."""
    compute, waiting = np.array(capture.compute_ns), np.array(capture.waiting_ns)
    if len(compute) < 2:
        return None
    if capture.work_ns:
        work = np.array(capture.work_ns)
        most = int(work.argmax())
        if work[most] >= _LONGER * np.median(np.delete(work, most)):
            return most
    slow = int(compute.argmax())
    others, awaited = (np.median(np.delete(one, slow)) for one in (compute, waiting))
    longer = compute[slow] >= _LONGER * max(others, 1)
    return slow if longer and waiting[slow] <= _WAITS_LESS * awaited else None
