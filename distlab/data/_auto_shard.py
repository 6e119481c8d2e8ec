"""auto_shard: what one of several workers reads of a dataset they all have."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from distlab.data._dataset import Dataset
from distlab.data._engine import Element, Reader, State, Stream
from distlab.data._files import Files
from distlab.data._interleave import Interleave
from distlab.data._options import AutoShardPolicy
from distlab.data._plan import Node, Opener, Reading, Unary, walk
from distlab.data._prefetch import Prefetch
from distlab.data._repeat import Repeat
from distlab.data._shard import Shard, ShardHint
from distlab.data._shuffle import Shuffle
from distlab.errors import InvalidArgumentError

_log = logging.getLogger("distlab")


def auto_shard(
    dataset: Dataset, num_workers: int, index: int, num_replicas: int | None = None
) -> Dataset:
    """Returns one worker's shard of a dataset, by the policy in its options.

    Where AUTO falls back on sharding by data it says so, as a warning of the
    logger `distlab`: every worker then reads everything.

    Args:
      dataset: what all workers have.
      num_workers: how many workers there are.
      index: which worker, from 0.
      num_replicas: taken for TensorFlow's sake; it does not matter here.

    Returns:
      A dataset. Over all workers every example comes once under AUTO, FILE,
      DATA and HINT; under OFF on each worker.

    Raises:
      InvalidArgumentError: when `index` is not one of the workers; under FILE,
        when the dataset reads no files; while iterating, when there are fewer
        files than workers.
    """
    del num_replicas
    if num_workers < 1 or not 0 <= index < num_workers:
        raise InvalidArgumentError(
            f"index must be one of the {num_workers} workers, 0 to {num_workers - 1}, got {index}"
        )
    plan = dataset.plan
    policy = effective_policy(dataset)
    if policy is AutoShardPolicy.FILE:
        return dataset.with_plan(_rewrite(plan, _is_reader, _shard_files(num_workers, index)))
    if policy is AutoShardPolicy.DATA:
        if num_workers == 1:
            return dataset
        if dataset.options().experimental_distribute.auto_shard_policy is AutoShardPolicy.AUTO:
            _log.warning(
                "AutoShardPolicy.AUTO shards this dataset by data, because it reads no files that "
                "could be dealt out: each of the %d workers reads all of it and keeps its share. "
                "Set auto_shard_policy to AutoShardPolicy.DATA if that is meant, or to OFF if each "
                "worker's dataset is its own already.",
                num_workers,
            )
        return dataset.shard(num_workers, index)
    if policy is AutoShardPolicy.HINT:
        return dataset.with_plan(_rewrite(plan, _is_hint, _fill_hint(num_workers, index)))
    return dataset


def effective_policy(dataset: Dataset) -> AutoShardPolicy:
    """Returns the policy of a dataset, FILE or DATA in place of AUTO.

    Raises:
      InvalidArgumentError: when it is FILE and the dataset reads no files, or
        HINT and it has no hint.
    """
    policy = dataset.options().experimental_distribute.auto_shard_policy
    nodes = list(walk(dataset.plan))
    if policy is AutoShardPolicy.AUTO:
        by_file = any(map(_is_reader, nodes))
        return AutoShardPolicy.FILE if by_file else AutoShardPolicy.DATA
    if policy is AutoShardPolicy.FILE and not any(map(_is_reader, nodes)):
        raise InvalidArgumentError(
            "AutoShardPolicy.FILE divides a dataset's files over the workers, and this one reads "
            "none. Use AutoShardPolicy.DATA, or AUTO, which chooses."
        )
    if policy is AutoShardPolicy.HINT and not any(map(_is_hint, nodes)):
        raise InvalidArgumentError(
            "AutoShardPolicy.HINT divides where the dataset has shard(SHARD_HINT, SHARD_HINT), "
            "and this one has none. Put it in, or use AutoShardPolicy.AUTO."
        )
    return policy


def _is_reader(node: Node) -> bool:
    """Returns whether the node's input names files, each read by one worker."""
    if isinstance(node, Files):
        return True
    if not isinstance(node, Interleave) or any(map(_is_reader, walk(node.input))):
        return False
    return any(map(_is_reader, walk(node.example())))


def _is_hint(node: Node) -> bool:
    return isinstance(node, ShardHint)


def _rewrite(node: Node, chosen: Callable[[Node], bool], change: Callable[[Node], Node]) -> Node:
    """Returns the plan with the chosen nodes changed, but not what they read."""
    if chosen(node):
        return change(node)
    if not node.inputs:
        return node
    return node.with_inputs(*(_rewrite(part, chosen, change) for part in node.inputs))


def _shard_files(num_workers: int, index: int) -> Callable[[Node], Node]:
    def change(reader: Node) -> Node:
        (names,) = reader.inputs
        return reader.with_inputs(_shard_names(names, num_workers, index))

    return change


def _shard_names(names: Node, num_workers: int, index: int) -> Node:
    """Shards names under what only changes their order, which may differ between workers."""
    if isinstance(names, Shuffle | Repeat | Prefetch):
        return names.with_inputs(_shard_names(names.input, num_workers, index))
    return NotEmpty(Shard(names, num_workers, index), num_workers)


def _fill_hint(num_workers: int, index: int) -> Callable[[Node], Node]:
    def change(hint: Node) -> Node:
        (part,) = hint.inputs
        return Shard(part, num_workers, index)

    return change


@dataclass(frozen=True, eq=False)
class NotEmpty(Unary):
    """A worker's file names, of which there must be one."""

    num_workers: int

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the names."""
        return _NotEmptyStream(open_input(self.input, reading), self.num_workers)


class _NotEmptyStream(Stream):
    def __init__(self, parent: Stream, num_workers: int) -> None:
        super().__init__(parent)
        self._num_workers = num_workers

    def __iter__(self) -> Reader:
        return _NotEmptyReader(iter(self._parent), self._num_workers)


class _NotEmptyReader(Reader):
    def __init__(self, parent: Reader, num_workers: int) -> None:
        super().__init__(parent)
        self._num_workers = num_workers
        self._empty = True

    def __next__(self) -> Element:
        element: Element | None = next(self._parent, None)
        if element is not None:
            self._empty = False
            return element
        if not self._empty:
            raise StopIteration
        raise InvalidArgumentError(
            f"there are fewer files than the {self._num_workers} workers, so that a worker has "
            "none. Use at least one file for each worker, or AutoShardPolicy.DATA."
        )

    def get_state(self) -> State:
        return {"empty": self._empty, "parent": self._parent.get_state()}

    def set_state(self, state: State) -> None:
        self._empty = state["empty"]
        self._parent.set_state(state["parent"])
