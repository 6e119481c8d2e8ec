"""One step's input while it is still in host memory, and where it comes from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from distlab.data import Dataset
from distlab.data._batch import Batch
from distlab.data._engine import State
from distlab.data._plan import walk
from distlab.data._rebatch import Rebatch
from distlab.data._worker_batches import global_batch_size
from distlab.input._parts import Parts


class Step(NamedTuple):
    """What the replicas get in one step.

    Attributes:
      structure: the pytree structure of an element.
      columns: for each component its parts.
      sizes: how many examples each replica gets.
      indices: positions of the examples in the source, None when not known.
      complete: false when the data ended before every replica had a batch, and
        the others got empty ones.
    """

    structure: Any
    columns: Sequence[Parts]
    sizes: list[int]
    indices: np.ndarray | None
    complete: bool = True

    @property
    def bytes(self) -> int:
        """Bytes of all parts together."""
        return sum(map(_bytes, self.columns))


class Reader(ABC):
    """One pass over the steps of a distributed dataset."""

    @abstractmethod
    def read(self) -> Step:
        """Returns the next step.

        Raises:
          StopIteration: the data came to its end; from then on always.
        """

    @abstractmethod
    def state(self) -> State:
        """Returns the position after the last step: lists, strings and numbers."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Goes to a position.

        Raises:
          InvalidArgumentError: it belongs to another pipeline.
        """

    @abstractmethod
    def close(self) -> None:
        """Stops reading ahead."""


class Steps(ABC):
    """Where a distributed dataset's steps come from; can be read any number of times.

    Attributes:
      policy: how batches are divided, as events say it.
      nominal: how many examples the first replica gets of a full batch; None
        when that is not known.
      fills: whether a last step for which some replicas have no batch is given
        all the same, with empty ones.
    """

    policy: Literal["rebatch", "per_replica"]
    nominal: int | None
    fills: bool

    @abstractmethod
    def open(self) -> Reader:
        """Starts a pass."""

    @property
    @abstractmethod
    def local_spec(self) -> Any:
        """The nest of specs of what one replica gets."""

    @abstractmethod
    def __len__(self) -> int:
        """Returns how many steps there are.

        Raises:
          CardinalityError: it is not known, or there is no end.
        """


def full_batch(dataset: Dataset) -> int | None:
    """Returns the size of full batches where verbs say it, without looking into the data."""
    if isinstance(dataset.plan, Rebatch):
        return max(dataset.plan.sizes)
    if not any(isinstance(node, Batch | Rebatch) for node in walk(dataset.plan)):
        return None
    return global_batch_size(dataset.plan)


def _bytes(column: Parts) -> int:
    if isinstance(column, np.ndarray):
        return column.nbytes
    return sum(len(part) if isinstance(part, bytes) else part.nbytes for part in column)
