"""Datasets and per-worker variables that workers in other processes make and use."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final, NoReturn, final

import numpy as np

from distlab.coordinator.per_worker import refuse_next
from distlab.coordinator.worker_datasets import dataset_of, require_dataset

_numbers: Final = itertools.count()


@final
class RemoteDataset:
    """A dataset that each worker makes in its own process.

    Attributes:
      number: Its number among the coordinator's datasets, iterators and per-worker variables.
      source: What a worker makes it of.

    Raises:
      StructureError: It is neither.
    """

    def __init__(self, source: Any) -> None:
        if not callable(source):
            require_dataset(source)
        self.number = next(_numbers)
        self.source = source

    @property
    def element_spec(self) -> Any:
        """The shapes and types of the elements; the coordinator makes the dataset to see them."""
        return dataset_of(self.source).element_spec

    def __iter__(self) -> Iterator[Any]:
        """Returns an iterator for each worker, as an argument for `schedule`."""
        return RemoteIterator(self)

    def __repr__(self) -> str:
        """Names the kind and the place."""
        return "RemoteDataset(one in each worker)"


@final
class RemoteIterator(Iterator[Any]):
    """An iterator that each worker makes in its own process.

    A worker that is started anew begins its dataset anew.

    Attributes:
      number: Its number among the coordinator's datasets, iterators and per-worker variables.
      dataset: The dataset.
    """

    def __init__(self, dataset: RemoteDataset) -> None:
        self.number = next(_numbers)
        self.dataset = dataset

    def __next__(self) -> NoReturn:
        """Refuses, as in TensorFlow: each worker reads its own iterator."""
        refuse_next()

    get_next = __next__

    def __repr__(self) -> str:
        """Names the kind and the place."""
        return "RemoteIterator(one in each worker)"


@final
class RemoteVariable:
    """A per-worker variable that each worker makes in its own process.

    Attributes:
      number: Its number among the coordinator's datasets, iterators and per-worker variables.
      about: The variable's `description`.
      value: Its initial value.
    """

    def __init__(self, about: dict[str, Any], value: np.ndarray, number: int | None = None) -> None:
        self.number = next(_numbers) if number is None else number
        self.about = about
        self.value = value
