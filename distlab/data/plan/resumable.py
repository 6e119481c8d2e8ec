"""Iterators whose position can be saved, by two names for each: tf.data's and Grain's."""

from __future__ import annotations

from abc import abstractmethod

from distlab.data.plan.engine import State
from distlab.uncopied import Uncopied


class Resumable(Uncopied):
    """An iterator with a position, which `dl.train.Checkpoint(iterator=iterator)` saves."""

    _uncopied = (
        "An iterator of a dataset can't be copied or pickled: both would take from one source. "
        "Write iter(dataset) for another pass; restore(iterator.state()) begins it at this place."
    )

    @abstractmethod
    def state(self) -> State:
        """Returns the position: a dict of lists, strings and numbers."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Goes to a position."""

    def get_state(self) -> State:
        """Returns `state()` (Grain's name for it).

        Example:
          >>> import distlab as dl
          >>> iterator = iter(dl.data.Dataset.range(5))
          >>> _ = next(iterator)
          >>> iterator.get_state() == iterator.state()
          True
        """
        return self.state()

    def set_state(self, state: State) -> None:
        """Goes to a position, as `restore` does (Grain's name for it).

        Args:
          state: A result of `get_state`.

        Example:
          >>> import distlab as dl
          >>> iterator = iter(dl.data.Dataset.range(5))
          >>> start = iterator.get_state()
          >>> first = next(iterator)
          >>> iterator.set_state(start)
          >>> int(next(iterator)) == int(first)
          True
        """
        self.restore(state)
