"""Options that travel along with a dataset."""

from __future__ import annotations

import enum

from distlab.errors import InvalidArgumentError


class AutoShardPolicy(enum.IntEnum):
    """How a dataset is divided over the workers that all have it.

    Attributes:
      OFF: each worker reads everything.
      AUTO: by file when the dataset reads files, by data otherwise.
      FILE: each worker reads its own files.
      DATA: each worker reads everything and keeps its share.
      HINT: the user's own `shard(SHARD_HINT, SHARD_HINT)` marks where to divide.
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


SHARD_HINT = -1
"""Stands for the number of workers and the worker in `shard`, under policy HINT."""


class DistributeOptions:
    """Options of distribution. A name that is none of them is an AttributeError."""

    __slots__ = ("_policy",)

    def __init__(self) -> None:
        self._policy: AutoShardPolicy | None = None

    @property
    def auto_shard_policy(self) -> AutoShardPolicy:
        """How the dataset is divided over workers; `AUTO` until it is set."""
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
        """Returns these options, except where the later ones say otherwise."""
        result = DistributeOptions()
        result._policy = self._policy if later._policy is None else later._policy
        return result


class Options:
    """Options of a dataset; `Dataset.with_options` attaches them.

    Attributes:
      experimental_distribute: options of distribution.
    """

    __slots__ = ("experimental_distribute",)

    def __init__(self) -> None:
        self.experimental_distribute = DistributeOptions()

    def merged(self, later: Options) -> Options:
        """Returns new options: these, except where the later ones say otherwise."""
        result = Options()
        result.experimental_distribute = self.experimental_distribute.merged(
            later.experimental_distribute
        )
        return result
