"""Misuse of datasets and of their distribution."""

from __future__ import annotations

import numpy as np

import distlab as dl
from distlab import errors
from distlab.data import Dataset
from tests.misuse.world import World, misuse


@misuse(errors.NotBatchedError, "needs a batch dimension", "shape=()", "Call .batch(")
def a_dataset_that_is_not_batched(w: World) -> None:
    w.strategy.experimental_distribute_dataset(Dataset.range(10))


@misuse(errors.StructureError, "must be an iterable of batches", "ndarray", "from_tensor_slices")
def an_array_as_dataset(w: World) -> None:
    w.strategy.experimental_distribute_dataset(np.ones((8, 3)))


@misuse(errors.StructureError, "holds texts", "texts", "experimental_local_results")
def texts_that_a_step_reads(w: World) -> None:
    texts = Dataset.from_tensor_slices(np.array(["a", "b", "c", "d"])).batch(4)
    for batch in w.strategy.experimental_distribute_dataset(texts):
        w.strategy.run(lambda texts: texts + 1, args=(batch,))


@misuse(errors.OneShotError, "can be read only once", "This generator", "Dataset.from_generator")
def a_generator_read_twice(w: World) -> None:
    batches = w.strategy.experimental_distribute_dataset(np.ones(8) * i for i in range(3))
    assert len(list(batches)) == 3
    list(batches)


@misuse(errors.ValueShapeError, "the same first dimension", "[(8,), (4,)]", "All components")
def components_of_different_lengths(w: World) -> None:
    next(iter(w.strategy.experimental_distribute_dataset([(np.ones(8), np.ones(4))])))


@misuse(errors.ArgumentValueError, "a multiple of num_replicas", "got 10", "Use a multiple")
def a_batch_size_that_does_not_divide(w: World) -> None:
    dl.InputContext(num_replicas_in_sync=4).get_per_replica_batch_size(10)


@misuse(errors.IteratorContextError, "can't be called inside", "one replica", "next(iterator)")
def the_next_batch_inside_a_replica_function(w: World) -> None:
    iterator = iter(w.strategy.experimental_distribute_dataset(w.dataset))
    w.strategy.run(lambda: next(iterator))


@misuse(errors.InvalidArgumentError, "must have one shape", "[(0,), (1,)]", "Pad them")
def a_batch_of_different_shapes(w: World) -> None:
    list(Dataset.range(2).map(lambda n: np.ones(int(n))).batch(2))
