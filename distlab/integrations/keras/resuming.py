"""Epochs that begin in the middle: batches that an interrupted run has applied are passed over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from keras.src.trainers.epoch_iterator import EpochIterator

from distlab.integrations.keras.patching import Function, patch


class Start(NamedTuple):
    """Where the next epoch begins.

    Attributes:
      batch: The number of batches that were applied.
      position: The position of the input's iterator; None where the batches must be read again.
    """

    batch: int
    position: Any = None


class Reading(NamedTuple):
    """What Keras reads.

    Attributes:
      iterator: The iterator of the batches.
      goes_on: Whether the next epoch goes on with it: `fit` was given `steps_per_epoch`.
    """

    iterator: Any
    goes_on: bool


class _Thread(threading.local):
    def __init__(self) -> None:
        self.start: Start | None = None
        self.reading = Reading(None, False)


_thread = _Thread()


def begin_at(start: Start) -> None:
    """Has the next epoch of this thread begin in the middle."""
    _thread.start = start


def reading() -> Reading:
    """Returns the iterator of which Keras is about to read a batch."""
    return _thread.reading


def patch_epochs() -> None:
    """Lets an epoch begin in the middle, with Keras' own count of its steps."""

    @patch(EpochIterator, "_enumerate_iterator")
    def _(old: Function) -> Function:
        def _enumerate_iterator(self: Any) -> Iterator[Any]:
            start, _thread.start = _thread.start, None
            for begin, end, iterator in old(self):
                if start is not None and start.position is not None and begin == 0:
                    iterator.set_state(start.position)
                if start is not None and begin < start.batch:
                    if start.position is None:
                        for _ in range(self.steps_per_execution):
                            next(iterator, None)
                    continue
                _thread.reading = Reading(iterator, self.steps_per_epoch is not None)
                yield begin, end, iterator

        return _enumerate_iterator
