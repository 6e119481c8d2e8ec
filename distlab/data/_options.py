"""Options of a dataset, which its transformations keep."""

from __future__ import annotations

import enum

from distlab.errors import InvalidArgumentError


class AutoShardPolicy(enum.IntEnum):
    """The division of a dataset over workers that all define it.

    Attributes:
      OFF: Each worker reads everything.
      AUTO: FILE when the dataset reads files, DATA otherwise.
      FILE: Each worker reads its own files.
      DATA: Each worker reads everything and keeps its share.
      HINT: The dataset is divided at its `shard(SHARD_HINT, SHARD_HINT)`.

    Example:
      >>> import distlab as dl
      >>> dataset = dl.data.Dataset.range(6).shard(dl.data.SHARD_HINT, dl.data.SHARD_HINT)
      >>> options = dl.data.Options()
      >>> options.experimental_distribute.auto_shard_policy = dl.data.AutoShardPolicy.HINT
      >>> print(*dl.data.auto_shard(dataset.with_options(options), num_workers=2, index=0))
      0 2 4
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


SHARD_HINT = -1
"""Means the number of workers, and of the worker, in `shard` under policy HINT."""


class DistributeOptions:
    """Options of distribution; setting an unknown one is an AttributeError."""

    __slots__ = ("_policy",)

    def __init__(self) -> None:
        self._policy: AutoShardPolicy | None = None

    @property
    def auto_shard_policy(self) -> AutoShardPolicy:
        """The division of the dataset over workers; `AUTO` by default."""
        return AutoShardPolicy.AUTO if self._policy is None else self._policy

    @auto_shard_policy.setter
    def auto_shard_policy(self, policy: AutoShardPolicy) -> None:
        if not isinstance(policy, AutoShardPolicy):
            raise InvalidArgumentError(
                f"auto_shard_policy must be an AutoShardPolicy, got {policy!r}. "
                "Use one of "
                + ", ".join(f"AutoShardPolicy.{each.name}" for each in AutoShardPolicy)
            )
        self._policy = policy

    def merged(self, later: DistributeOptions) -> DistributeOptions:
        """Returns these options, overridden by the later ones that are set."""
        result = DistributeOptions()
        result._policy = self._policy if later._policy is None else later._policy
        return result


class Options:
    """Options of a dataset; `Dataset.with_options` attaches them.

    Attributes:
      experimental_distribute: Options of distribution.

    Example:
      >>> import distlab as dl
      >>> options = dl.data.Options()
      >>> options.experimental_distribute.auto_shard_policy = dl.data.AutoShardPolicy.DATA
      >>> dataset = dl.data.Dataset.range(4).with_options(options).batch(2)
      >>> dataset.options().experimental_distribute.auto_shard_policy
      <AutoShardPolicy.DATA: 2>
    """

    __slots__ = ("experimental_distribute",)

    def __init__(self) -> None:
        self.experimental_distribute = DistributeOptions()

    def merged(self, later: Options) -> Options:
        """Returns these options, overridden by the later ones that are set."""
        result = Options()
        result.experimental_distribute = self.experimental_distribute.merged(
            later.experimental_distribute
        )
        return result
