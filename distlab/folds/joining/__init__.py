"""The events of several processes as those of one process that had all replicas.

Each process numbers its strategies, programs, datasets and arrays for itself, and its lists
have an entry for each of its own replicas. `Join` gives equal things one number, fills lists
of all replicas, and keeps what all processes report alike once. Steps are joined by their
numbers, batches by theirs; clocks only place them in time.
"""

from __future__ import annotations

from distlab.folds.joining.join import Join
from distlab.folds.joining.members import StepPart

__all__ = ["Join", "StepPart"]
