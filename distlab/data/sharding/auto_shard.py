"""auto_shard: the part of a dataset that one of several workers reads."""

from __future__ import annotations

import logging
from collections.abc import Callable

from distlab.data._dataset import Dataset
from distlab.data.plan.plan import Node, walk
from distlab.data.sharding.options import AutoShardPolicy
from distlab.data.sources.files import Files
from distlab.data.transforms.cache import FileCache
from distlab.data.transforms.interleave import Interleave
from distlab.data.transforms.order import Repeat, ShardHint, Shuffle, Slice
from distlab.data.transforms.prefetch import Prefetch
from distlab.errors import InvalidArgumentError

_WHOLE = "0-of-1"
_log = logging.getLogger("distlab")


def auto_shard(
    dataset: Dataset, num_workers: int, index: int, num_replicas: int | None = None
) -> Dataset:
    """Returns one worker's shard of a dataset, by the policy in its options.

    When AUTO shards by data, each worker reads everything, and the logger
    `distlab` warns about it.

    Args:
      dataset: The dataset that all workers define.
      num_workers: The number of workers.
      index: The number of this worker, from 0.
      num_replicas: Ignored; accepted for compatibility with TensorFlow.

    Returns:
      A dataset. Under AUTO, FILE, DATA and HINT every example is in the shard of
      one worker; under OFF it is in all of them.

    Raises:
      InvalidArgumentError: `index` is not below `num_workers`. Under FILE, the
        dataset reads no files, or fewer than there are workers.

    Example:
      >>> import distlab as dl
      >>> options = dl.data.Options()
      >>> options.experimental_distribute.auto_shard_policy = dl.data.AutoShardPolicy.DATA
      >>> dataset = dl.data.Dataset.range(7).with_options(options)
      >>> print(*dl.data.auto_shard(dataset, num_workers=2, index=1))
      1 3 5
    """
    del num_replicas
    if num_workers < 1 or not 0 <= index < num_workers:
        raise InvalidArgumentError(
            f"index must be the number of one of {num_workers} workers, 0 to {num_workers - 1}, "
            f"got {index}"
        )
    plan = dataset.plan
    policy = effective_policy(dataset)
    part = f"{index}-of-{num_workers}"

    def shard_files(reader: Node) -> Node:
        return reader.with_inputs(_shard_names(reader.inputs[0], num_workers, index))

    def fill_hint(hint: Node) -> Node:
        return Slice(hint.inputs[0], index, num_workers)

    if policy is AutoShardPolicy.FILE:
        return dataset.with_plan(_rewrite(plan, _is_reader, shard_files, part))
    if policy is AutoShardPolicy.DATA:
        if num_workers == 1:
            return dataset
        warn_of_reading_all(dataset, num_workers)
        return dataset.shard(num_workers, index)
    if policy is AutoShardPolicy.HINT:
        return dataset.with_plan(_rewrite(plan, _is_hint, fill_hint, part))
    return dataset


def effective_policy(dataset: Dataset) -> AutoShardPolicy:
    """Returns the policy of a dataset, FILE or DATA instead of AUTO."""
    policy = dataset.options().experimental_distribute.auto_shard_policy
    nodes = list(walk(dataset.plan))
    if policy is AutoShardPolicy.AUTO:
        by_file = any(map(_is_reader, nodes))
        return AutoShardPolicy.FILE if by_file else AutoShardPolicy.DATA
    if policy is AutoShardPolicy.FILE and not any(map(_is_reader, nodes)):
        raise InvalidArgumentError(
            "AutoShardPolicy.FILE divides the files of a dataset over the workers, and this "
            "dataset reads none. Use AutoShardPolicy.DATA, or AUTO, which chooses."
        )
    if policy is AutoShardPolicy.HINT and not any(map(_is_hint, nodes)):
        raise InvalidArgumentError(
            "AutoShardPolicy.HINT divides a dataset at shard(SHARD_HINT, SHARD_HINT), and this "
            "dataset has none. Add it, or use AutoShardPolicy.AUTO."
        )
    return policy


def warn_of_reading_all(dataset: Dataset, num_workers: int) -> None:
    """Logs that AUTO shards by data, so that each worker reads everything."""
    if dataset.options().experimental_distribute.auto_shard_policy is AutoShardPolicy.AUTO:
        _log.warning(
            "AutoShardPolicy.AUTO shards this dataset by data, because it reads no files that "
            "could be divided: each of the %d workers reads all of it and keeps its share. "
            "Set auto_shard_policy to AutoShardPolicy.DATA to confirm that, or to OFF if each "
            "worker has its own dataset already.",
            num_workers,
        )


def _is_reader(node: Node) -> bool:
    """Returns whether the node's input names files that one worker each can read."""
    if isinstance(node, Files):
        return True
    if not isinstance(node, Interleave) or any(map(_is_reader, walk(node.input))):
        return False
    return any(map(_is_reader, walk(node.example())))


def _is_hint(node: Node) -> bool:
    return isinstance(node, ShardHint)


def _rewrite(
    node: Node, chosen: Callable[[Node], bool], change: Callable[[Node], Node], part: str
) -> Node:
    """Returns the plan with the chosen nodes changed; files of caches get the part's name."""
    if chosen(node):
        return change(node)
    inputs = [_rewrite(each, chosen, change, part) for each in node.inputs]
    if isinstance(node, FileCache) and part != _WHOLE and any(map(chosen, walk(node.input))):
        node = node.for_part(part)
    return node.with_inputs(*inputs) if inputs else node


def _shard_names(names: Node, num_workers: int, index: int) -> Node:
    """Shards names below nodes that only change their order, which workers may not share."""
    if isinstance(names, Shuffle | Repeat | Prefetch):
        return names.with_inputs(_shard_names(names.input, num_workers, index))
    if 0 <= names.cardinality < num_workers:
        raise InvalidArgumentError(
            f"There are fewer files than the {num_workers} workers, {names.cardinality}, so that a "
            "worker has none. Use at least one file for each worker, or AutoShardPolicy.DATA."
        )
    return Slice(names, index, num_workers)
