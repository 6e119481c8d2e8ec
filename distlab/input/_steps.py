"""The input of one step in host memory, and the source of such steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import numpy as np

from distlab.data import Dataset
from distlab.data.plan.engine import State
from distlab.data.plan.plan import walk
from distlab.data.plan.spec import refuse_dataset
from distlab.data.sharding.worker_batches import global_batch_size
from distlab.data.transforms.batch import Batch, Rebatch
from distlab.data.transforms.padded_batch import PaddedBatch

Parts: TypeAlias = Sequence[Any] | np.ndarray
"""One component of a batch: an array (or `bytes`) for each replica, or one `(replicas, ...)`."""

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
"""The shape of one component on each replica of all processes."""


class Step(NamedTuple):
    """The input of this process's replicas in one step.

    Attributes:
      structure: The pytree structure of an element.
      columns: The parts of each component.
      sizes: The number of examples of each replica.
      indices: Positions of the examples in the source; None when unknown.
      complete: Whether every replica has a batch; if not, some have empty ones.
      shapes: The shapes of each component on the replicas of all processes; None where all
        replicas are this process's.
    """

    structure: Any
    columns: Sequence[Parts]
    sizes: list[int]
    indices: np.ndarray | None
    complete: bool = True
    shapes: Sequence[Shapes] | None = None

    @property
    def bytes(self) -> int:
        """The bytes of all parts."""
        return sum(map(_bytes, self.columns))


class Reader(ABC):
    """One pass over the steps of a distributed dataset."""

    @abstractmethod
    def read(self) -> Step:
        """Returns the next step."""

    @abstractmethod
    def state(self) -> State:
        """Returns the position after the last step: a nest of lists, strings and numbers."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Moves to a position."""

    def interrupt(self) -> None:  # noqa: B027 - most readers wait for nobody
        """Ends a wait for other processes in another thread, which then closes the reader."""

    @abstractmethod
    def close(self) -> None:
        """Stops reading ahead."""


class Steps(ABC):
    """The source of a distributed dataset's steps, which can be read repeatedly.

    Attributes:
      policy: How batches are divided, as events name it.
      nominal: The number of examples of the first replica in a full batch; None when unknown.
      fills: Whether a last step in which some replicas have no batch is returned, with
        empty batches for those.
      least_ahead: The least number of steps to read ahead of the program.
      rereadable: Whether steps that were read can be read again, by this process alone.
    """

    policy: Literal["rebatch", "per_replica"]
    nominal: int | None
    fills: bool
    least_ahead: int = 0
    rereadable: bool = False

    @abstractmethod
    def open(self) -> Reader:
        """Starts a pass."""

    @property
    @abstractmethod
    def local_spec(self) -> Any:
        """The nest of specs of one replica's part."""

    @property
    @abstractmethod
    def endless(self) -> bool:
        """Whether the data is known to have no end."""

    @abstractmethod
    def __len__(self) -> int:
        """Returns the number of steps."""


def flattened(value: Any) -> tuple[list[Any], Any]:
    """Returns the leaves and the pytree structure of an element.

    Mappings that JAX does not know as containers become dicts.
    """
    leaves, structure = jax.tree.flatten(value)
    for leaf in leaves:
        refuse_dataset("Distributing a dataset", leaf)
    if any(isinstance(leaf, Mapping) for leaf in leaves):
        leaves, structure = jax.tree.flatten(_with_dicts(value))
    return leaves, structure


def full_batch(dataset: Dataset) -> int | None:
    """Returns the size of full batches from the dataset's plan, without reading the data."""
    if isinstance(dataset.plan, Rebatch):
        return max(dataset.plan.sizes)
    batches = (Batch, PaddedBatch, Rebatch)
    if not any(isinstance(node, batches) for node in walk(dataset.plan)):
        return None
    return global_batch_size(dataset.plan)


def _bytes(column: Parts) -> int:
    if isinstance(column, np.ndarray):
        return column.nbytes
    return sum(len(part) if isinstance(part, bytes) else part.nbytes for part in column)


def _with_dicts(value: Any) -> Any:
    return jax.tree.map(
        lambda leaf: (
            {key: _with_dicts(part) for key, part in leaf.items()}
            if isinstance(leaf, Mapping)
            else leaf
        ),
        value,
    )
