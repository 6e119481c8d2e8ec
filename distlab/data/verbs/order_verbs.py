"""The verbs of `Dataset` that choose and order elements, and leave them as they are."""

# ruff: noqa: ARG002 - tf.data's parameters

from __future__ import annotations

from distlab.data.plan.arguments import checked, seed_of
from distlab.data.plan.plan import is_plain
from distlab.data.plan.spec import require_alike
from distlab.data.sharding.options import SHARD_HINT
from distlab.data.transforms.order import Concatenate, Repeat, ShardHint, Shuffle, Slice
from distlab.data.transforms.prefetch import Prefetch
from distlab.data.verbs.planned import DatasetT, Planned
from distlab.errors import ArgumentTypeError, InvalidArgumentError


class OrderVerbs(Planned[DatasetT]):
    """The verbs that choose and order elements."""

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
        name: str | None = None,
    ) -> DatasetT:
        """Shuffles the elements.

        Each element is drawn uniformly from the next `buffer_size` elements; with a
        buffer as large as the dataset the order is a uniform permutation.

        Args:
          buffer_size: The number of elements to draw from.
          seed: The same seed gives the same orders in every process. None chooses a
            random seed.
          reshuffle_each_iteration: Whether each iteration, and each repetition, has its
            own order. None means yes.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of the same elements.

        Raises:
          InvalidArgumentError: `buffer_size` is less than 1.

        Example:
          >>> import distlab as dl
          >>> numbers = dl.data.Dataset.range(100)
          >>> first, second = numbers.shuffle(100, seed=7), numbers.shuffle(100, seed=7)
          >>> list(first) == list(second)
          True
          >>> list(first) == sorted(first)
          False
        """
        size, reshuffle = checked(
            "shuffle",
            buffer_size=buffer_size,
            reshuffle_each_iteration=reshuffle_each_iteration,
        )
        number = seed_of("shuffle", seed)
        return self.with_plan(
            Shuffle(self.plan, size, seed=number, reshuffle=reshuffle is not False)
        )

    def repeat(self, count: int | None = None, name: str | None = None) -> DatasetT:
        """Repeats the elements.

        Args:
          count: The number of repetitions; None or -1 repeats without end.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset `count` times as long.

        Raises:
          InvalidArgumentError: `count` is not an integer.

        Example:
          >>> import distlab as dl
          >>> print(*dl.data.Dataset.range(2).repeat(3))
          0 1 0 1 0 1
        """
        (times,) = checked("repeat", count=count)
        return self.with_plan(Repeat(self.plan, None if times is None or times < 0 else times))

    def take(self, count: int, name: str | None = None) -> DatasetT:
        """Keeps the first elements.

        Args:
          count: The number of elements to keep; -1 keeps all.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of at most `count` elements.

        Raises:
          InvalidArgumentError: `count` is not an integer.

        Example:
          >>> import distlab as dl
          >>> print(*dl.data.Dataset.range(100).take(3))
          0 1 2
        """
        (number,) = checked("take", count=count)
        return self.with_plan(self.plan if number < 0 else Slice(self.plan, count=number))

    def skip(self, count: int, name: str | None = None) -> DatasetT:
        """Drops the first elements.

        Args:
          count: The number of elements to drop; -1 drops all.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of the other elements.

        Raises:
          InvalidArgumentError: `count` is not an integer.

        Example:
          >>> import distlab as dl
          >>> print(*dl.data.Dataset.range(5).skip(3))
          3 4
        """
        (number,) = checked("skip", count=count)
        if number < 0:
            return self.with_plan(Slice(self.plan, count=0))
        return self.with_plan(Slice(self.plan, start=number))

    def shard(self, num_shards: int, index: int, name: str | None = None) -> DatasetT:
        """Keeps every `num_shards`-th element.

        Args:
          num_shards: The number of shards. `SHARD_HINT` for both arguments means one
            shard for each worker, under AutoShardPolicy.HINT.
          index: The number of this shard, from 0.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of elements `index`, `index + num_shards`, and so on.

        Raises:
          InvalidArgumentError: `index` is negative, or not less than `num_shards`.

        Example:
          >>> import distlab as dl
          >>> print(*dl.data.Dataset.range(7).shard(num_shards=3, index=1))
          1 4
        """
        shards, number = checked("shard", num_shards=num_shards, index=index)
        if (shards, number) == (SHARD_HINT, SHARD_HINT):
            return self.with_plan(ShardHint(self.plan))
        if not 0 <= number < shards:
            raise InvalidArgumentError(
                f"index of shard must be from 0 to num_shards - 1 ({shards - 1}), got {number}. "
                "Number the shards from 0."
            )
        return self.with_plan(Slice(self.plan, start=number, step=shards))

    def concatenate(self, dataset: DatasetT, name: str | None = None) -> DatasetT:
        """Appends the elements of another dataset.

        Args:
          dataset: A dataset of elements with the same structure and dtypes.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of the elements of both.

        Raises:
          ArgumentTypeError: `dataset` is not a `Dataset`.
          StructureError: The structures differ, where they are known before elements are read.
          ValueShapeError: The dtypes differ; raised likewise.

        Example:
          >>> import distlab as dl
          >>> print(*dl.data.Dataset.range(2).concatenate(dl.data.Dataset.range(10, 12)))
          0 1 10 11
        """
        if not hasattr(dataset, "plan"):
            raise ArgumentTypeError(
                f"concatenate needs a Dataset, got a {type(dataset).__name__}. Make one with "
                "Dataset.from_tensor_slices(...)."
            )
        parts = (self.plan, dataset.plan)
        require_alike(parts)
        return self.with_plan(Concatenate(parts)).with_options(dataset.options())

    def prefetch(self, buffer_size: int | None = None, name: str | None = None) -> DatasetT:
        """Prepares elements ahead of time, in a thread.

        Single rows of arrays are not prefetched: they need no preparation.

        Args:
          buffer_size: The largest number of elements to prepare; None or `AUTOTUNE`
            means two.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of the same elements.

        Raises:
          InvalidArgumentError: `buffer_size` is not an integer, or is less than -1.

        Example:
          >>> import distlab as dl
          >>> batches = dl.data.Dataset.range(4).batch(2).map(lambda x: x + 1)
          >>> print(*batches.prefetch(dl.data.AUTOTUNE))
          [1 2] [3 4]
        """
        (size,) = checked("prefetch", buffer_size=buffer_size)
        if is_plain(self.plan):
            return self.with_plan(self.plan)
        return self.with_plan(Prefetch(self.plan, -1 if size is None else size))
