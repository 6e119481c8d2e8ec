"""The verbs of `Dataset` that choose and order elements, and leave them as they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from distlab.data._arguments import integer
from distlab.data._bounds import Skip, Take
from distlab.data._concatenate import Concatenate
from distlab.data._options import SHARD_HINT
from distlab.data._plan import Node, is_plain
from distlab.data._prefetch import Prefetch
from distlab.data._repeat import Repeat
from distlab.data._shard import Shard, ShardHint
from distlab.data._shuffle import Shuffle
from distlab.errors import ArgumentTypeError, InvalidArgumentError

if TYPE_CHECKING:
    from distlab.data._dataset import Dataset


class OrderVerbs(ABC):
    """What chooses and orders elements."""

    @property
    @abstractmethod
    def plan(self) -> Node:
        """What is read."""

    @abstractmethod
    def with_plan(self, plan: Node) -> Dataset:
        """Returns a dataset of another plan with the same options."""

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
    ) -> Dataset:
        """Puts elements in random order.

        Each element is drawn uniformly from the next `buffer_size` ones; with a
        buffer as large as the dataset the order is a uniform permutation.

        Args:
          buffer_size: how many elements to draw from.
          seed: the same seed gives the same orders in every process; None: a
            random one.
          reshuffle_each_iteration: whether each iteration, and each repetition,
            has an order of its own. None: yes.

        Returns:
          A dataset of the same elements.

        Raises:
          InvalidArgumentError: when `buffer_size` is less than 1.
        """
        size = integer("shuffle", "buffer_size", buffer_size, at_least=1)
        reshuffle = True if reshuffle_each_iteration is None else bool(reshuffle_each_iteration)
        if seed is None:
            return self.with_plan(Shuffle(self.plan, size, reshuffle=reshuffle))
        number = integer("shuffle", "seed", seed)
        return self.with_plan(Shuffle(self.plan, size, number, reshuffle))

    def repeat(self, count: int | None = None) -> Dataset:
        """Repeats the elements.

        Args:
          count: how often; None or -1: without end.

        Returns:
          A dataset `count` times as long.

        Raises:
          InvalidArgumentError: when `count` is no integer.
        """
        times = -1 if count is None else integer("repeat", "count", count)
        return self.with_plan(Repeat(self.plan, None if times < 0 else times))

    def take(self, count: int) -> Dataset:
        """Keeps the first elements.

        Args:
          count: how many at most; -1: all.

        Returns:
          A dataset of the first `count` elements.

        Raises:
          InvalidArgumentError: when `count` is no integer.
        """
        number = integer("take", "count", count)
        return self.with_plan(self.plan if number < 0 else Take(self.plan, number))

    def skip(self, count: int) -> Dataset:
        """Leaves out the first elements.

        Args:
          count: how many; -1: all.

        Returns:
          A dataset of the other elements.

        Raises:
          InvalidArgumentError: when `count` is no integer.
        """
        number = integer("skip", "count", count)
        return self.with_plan(Take(self.plan, 0) if number < 0 else Skip(self.plan, number))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Keeps every `num_shards`-th element.

        Args:
          num_shards: how many shards there are; `SHARD_HINT` for both arguments:
            as many as workers, under AutoShardPolicy.HINT.
          index: which of them, from 0.

        Returns:
          A dataset of elements `index`, `index + num_shards`, and so on.

        Raises:
          InvalidArgumentError: when `index` is not one of the shards.
        """
        if (num_shards, index) == (SHARD_HINT, SHARD_HINT):
            return self.with_plan(ShardHint(self.plan))
        shards = integer("shard", "num_shards", num_shards, at_least=1)
        number = integer("shard", "index", index, at_least=0)
        if number >= shards:
            raise InvalidArgumentError(
                f"index of shard must be less than num_shards ({shards}), got {number}"
            )
        return self.with_plan(Shard(self.plan, shards, number))

    def concatenate(self, dataset: Dataset) -> Dataset:
        """Appends the elements of another dataset.

        Args:
          dataset: has elements of the same structure and dtypes.

        Returns:
          A dataset of the elements of both.

        Raises:
          ArgumentTypeError: when it is no dataset.
          StructureError: when structures differ, as soon as `element_spec` is
            asked for.
        """
        if not hasattr(dataset, "plan"):
            raise ArgumentTypeError(
                f"concatenate needs a Dataset, got a {type(dataset).__name__}. Make one of it: "
                "Dataset.from_tensor_slices(...)."
            )
        options = dataset.options()
        return self.with_plan(Concatenate(self.plan, dataset.plan)).with_options(options)

    def prefetch(self, buffer_size: int | None = None) -> Dataset:
        """Prepares elements ahead, in a thread.

        Single rows of arrays are not prefetched: there is nothing to prepare.

        Args:
          buffer_size: how many elements at most; None or `AUTOTUNE`: two.

        Returns:
          A dataset of the same elements.

        Raises:
          InvalidArgumentError: when `buffer_size` is no integer, or less than -1.
        """
        size = -1
        if buffer_size is not None:
            size = integer("prefetch", "buffer_size", buffer_size, at_least=-1)
        return self.with_plan(self.plan if is_plain(self.plan) else Prefetch(self.plan, size))
