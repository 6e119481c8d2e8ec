"""Options that travel along with a dataset."""

from __future__ import annotations

import copy
import enum
from dataclasses import dataclass, field


class AutoShardPolicy(enum.IntEnum):
    """How a dataset is divided over the workers that all have it.

    Attributes:
      OFF: each worker reads everything.
      AUTO: by file when the dataset reads files, by data otherwise.
      FILE: each worker reads its own files.
      DATA: each worker reads everything and keeps its share.
      HINT: the user's own `shard` marks where to divide.
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


@dataclass
class DistributeOptions:
    """Options of distribution.

    Attributes:
      auto_shard_policy: how the dataset is divided over workers.
    """

    auto_shard_policy: AutoShardPolicy = AutoShardPolicy.AUTO


@dataclass
class Options:
    """Options of a dataset; `with_options` attaches them.

    Attributes:
      experimental_distribute: options of distribution.
    """

    experimental_distribute: DistributeOptions = field(default_factory=DistributeOptions)

    def copy(self) -> Options:
        """Returns options that later changes to these leave alone."""
        return copy.deepcopy(self)
