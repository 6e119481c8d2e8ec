"""Datasets that workers in other processes make and read."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, TypeAlias, final

from distlab.coordinator.per_worker import refuse_next
from distlab.coordinator.worker_datasets import dataset_of, require_dataset

Recipe: TypeAlias = tuple[Callable[[Any], Any], Any]
"""A function, and its argument, that make an object in a worker."""

numbers: Final = itertools.count()
"""The numbers of the datasets, iterators and functions that workers keep."""


@final
class RemoteDataset:
    """A dataset that each worker makes in its own process."""

    def __init__(self, source: Any) -> None:
        if not callable(source):
            require_dataset(source)
        self.number = next(numbers)
        self.recipe: Recipe = (dataset_of, source)

    @property
    def element_spec(self) -> Any:
        """The shapes and types of the elements; the coordinator makes the dataset to see them."""
        make, source = self.recipe
        return make(source).element_spec

    def __iter__(self) -> Iterator[Any]:
        """Returns an iterator for each worker, as an argument for `schedule`."""
        return RemoteIterator(self)

    def __repr__(self) -> str:
        """Names the kind and the place."""
        return "RemoteDataset(one in each worker)"


@final
class RemoteIterator(Iterator[Any]):
    """An iterator that each worker makes in its own process; a restarted worker begins anew."""

    def __init__(self, dataset: RemoteDataset) -> None:
        self.number = next(numbers)
        self.recipe: Recipe = (iter, dataset)

    def __next__(self) -> NoReturn:
        """Refuses, as in TensorFlow: each worker reads its own iterator."""
        refuse_next()

    get_next = __next__

    def __repr__(self) -> str:
        """Names the kind and the place."""
        return "RemoteIterator(one in each worker)"
