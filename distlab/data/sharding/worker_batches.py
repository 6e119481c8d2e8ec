"""The batches of one worker's replicas, for a dataset distributed over several workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distlab.data._dataset import Dataset
from distlab.data.plan.engine import Element
from distlab.data.plan.nest import leaves
from distlab.data.plan.plan import Node, Unary
from distlab.data.plan.rows import rows
from distlab.data.sharding.auto_shard import auto_shard, effective_policy
from distlab.data.sharding.options import AutoShardPolicy
from distlab.data.transforms.batch import Batch, Divide, Rebatch
from distlab.data.transforms.cache import FileCache
from distlab.data.transforms.directed import Directed
from distlab.data.transforms.elements import Filter, Map
from distlab.data.transforms.order import Concatenate
from distlab.data.transforms.padded_batch import PaddedBatch
from distlab.errors import NotBatchedError


def worker_batches(
    dataset: Dataset, num_workers: int, worker_index: int, replicas_per_worker: int
) -> Iterator[tuple[Any, ...]]:
    """Yields the batches of one worker's replicas, step by step.

    Global batches are divided over all replicas of all workers. Under DATA, each
    batch is cut into equal parts, which the workers receive in turns; under FILE
    and OFF, each worker cuts its own batches so that all workers together receive
    one global batch in a step.

    Args:
      dataset: A dataset batched by the global batch size.
      num_workers: The number of workers.
      worker_index: The number of this worker, from 0.
      replicas_per_worker: The number of replicas on each worker.

    Yields:
      One batch for each replica; in the last step some may be empty.

    Raises:
      NotBatchedError: There are several replicas, and elements have no first
        dimension to divide.
      InvalidArgumentError: The shard policy does not fit the dataset, or
        `worker_index` is not below `num_workers`.

    Example:
      >>> import distlab as dl
      >>> options = dl.data.Options()
      >>> options.experimental_distribute.auto_shard_policy = dl.data.AutoShardPolicy.DATA
      >>> dataset = dl.data.Dataset.range(12).batch(8).with_options(options)
      >>> for step in dl.data.worker_batches(dataset, 2, worker_index=1, replicas_per_worker=2):
      ...     print(*step)
      [2 3] [6 7]
      [9] [11]
    """
    replicas = num_workers * replicas_per_worker
    if replicas > 1:
        dataset = divided(dataset, num_workers, worker_index, replicas_per_worker)
    return _steps(auto_shard(dataset, num_workers, worker_index), replicas_per_worker)


def divided(dataset: Dataset, num_workers: int, index: int, per_worker: int) -> Dataset:
    """Cuts global batches into those of single replicas."""
    if dataset.plan.exact and not dataset.batched:
        raise NotBatchedError(
            "A dataset is divided over replicas along the first dimension of its elements, and "
            f"these have none: {dataset.element_spec}. Call batch(global_batch_size) first."
        )
    size = global_batch_size(dataset.plan)
    if effective_policy(dataset) is AutoShardPolicy.DATA or size is None:
        return dataset.with_plan(Divide(dataset.plan, num_workers * per_worker))
    sizes = batch_sizes_for_worker(size, num_workers, per_worker, index)
    return dataset.with_plan(Rebatch(dataset.plan, sizes, False))


def batch_sizes_for_worker(
    global_batch: int, num_workers: int, replicas_per_worker: int, worker_index: int
) -> tuple[int, ...]:
    """Returns the batch sizes of a worker, in turn; those of all in a step are the global batch."""
    replicas = num_workers * replicas_per_worker
    small, larger = divmod(global_batch, replicas)
    sizes = (small + 1,) * larger + (small,) * (replicas - larger)
    offset = worker_index * replicas_per_worker
    return sizes[offset:] + sizes[:offset]


def global_batch_size(plan: Node) -> int | None:
    """Returns the size of a plan's full batches, of its `batch` or its specs; None if unknown."""
    node = plan
    while True:
        if isinstance(node, Batch | PaddedBatch):
            return node.size
        if isinstance(node, Rebatch):
            return node.sizes[0] if len(set(node.sizes)) == 1 else None
        if isinstance(node, Concatenate | Directed):
            found = {global_batch_size(part) for part in node.parts}
            return found.pop() if len(found) == 1 else None
        if not isinstance(node, Unary) or not _keeps_rows(node):
            break
        node = node.input
    if not plan.exact:
        return None  # to look at an element would take it from the reading that follows
    sizes = {spec.shape[0] if spec.rank else None for spec in leaves(plan.spec)}
    return sizes.pop() if len(sizes) == 1 else None


def has_fixed_shapes(plan: Node) -> bool:
    """Returns whether all elements have one shape, without reading any.

    A function of arrays of one shape is taken to return arrays of one shape.
    """
    if plan.exact:
        return all(size is not None for spec in leaves(plan.spec) for size in spec.shape)
    if isinstance(plan, Batch | PaddedBatch):
        return plan.drop_remainder and has_fixed_shapes(plan.input)
    return isinstance(plan, Unary) and _keeps_rows(plan) and has_fixed_shapes(plan.input)


def _keeps_rows(node: Unary) -> bool:
    """Returns whether elements keep their first dimension, as far as is known."""
    return type(node).spec is Unary.spec or isinstance(node, Map | Filter | FileCache)


def _steps(dataset: Dataset, replicas: int) -> Iterator[tuple[Any, ...]]:
    batch: list[Element] = []
    for element in dataset.elements():
        batch.append(element)
        if len(batch) == replicas:
            yield tuple(part.value for part in batch)
            batch = []
    if batch:
        missing = replicas - len(batch)
        batch += [rows(batch[0], 0, 0)] * missing
        yield tuple(part.value for part in batch)
