"""Options of a dataset, which its transformations keep."""

from __future__ import annotations

import enum
from typing import Final, TypeVar

from distlab.data.sharding.option_fields import Field, OptionFields

T = TypeVar("T")


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


class AutotuneAlgorithm(enum.Enum):
    """tf.data's ways to choose buffer sizes and degrees of parallelism; none has an effect here.

    Example:
      >>> import distlab as dl
      >>> dl.data.AutotuneAlgorithm.HILL_CLIMB
      <AutotuneAlgorithm.HILL_CLIMB: 1>
    """

    DEFAULT = 0
    HILL_CLIMB = 1
    GRADIENT_DESCENT = 2
    MAX_PARALLELISM = 3
    STAGE_BASED = 4


class ExternalStatePolicy(enum.Enum):
    """tf.data's policies for state outside of a dataset when it is saved; no effect here.

    Example:
      >>> import distlab as dl
      >>> dl.data.ExternalStatePolicy.WARN
      <ExternalStatePolicy.WARN: 0>
    """

    WARN = 0
    IGNORE = 1
    FAIL = 2


def _optional(kind: type[T], no_effect: str, already: T | None = None) -> Field[T | None]:
    return Field(kind, lambda: None, no_effect=no_effect, already=already)


_NO_TUNING: Final = "the sizes of buffers are those that the verbs are given"
_AS_WRITTEN: Final = "a dataset does what its verbs say, in their order"
_NO_POOL: Final = "a dataset is read by the thread that iterates over it, and by those of prefetch"


class AutotuneOptions(OptionFields):
    """Options of autotuning (`tf.data.experimental.AutotuneOptions`); they have no effect.

    Example:
      >>> import distlab as dl
      >>> options = dl.data.Options()
      >>> options.autotune.enabled = False
      >>> options.autotune
      AutotuneOptions(enabled=False)
    """

    enabled = _optional(bool, _NO_TUNING, already=False)
    cpu_budget = _optional(int, _NO_TUNING)
    ram_budget = _optional(int, _NO_TUNING)
    autotune_algorithm = _optional(AutotuneAlgorithm, _NO_TUNING)
    initial_parallelism = _optional(int, _NO_TUNING)
    min_parallelism = _optional(int, _NO_TUNING)


class DistributeOptions(OptionFields):
    """Options of distribution (`tf.data.experimental.DistributeOptions`).

    Attributes:
      auto_shard_policy: The division of the dataset over workers; `AUTO` by default.
      num_devices: Has no effect: a strategy knows its devices.

    Example:
      >>> import distlab as dl
      >>> dl.data.DistributeOptions().auto_shard_policy
      <AutoShardPolicy.AUTO: 0>
    """

    auto_shard_policy: Field[AutoShardPolicy] = Field(AutoShardPolicy, lambda: AutoShardPolicy.AUTO)
    num_devices = _optional(int, "a strategy knows its devices")


class OptimizationOptions(OptionFields):
    """Options of tf.data's graph rewrites (`OptimizationOptions`); they have no effect.

    Example:
      >>> import distlab as dl
      >>> options = dl.data.Options()
      >>> options.experimental_optimization.map_fusion = False
      >>> options.experimental_optimization
      OptimizationOptions(map_fusion=False)
    """

    apply_default_optimizations = _optional(bool, _AS_WRITTEN, already=False)
    filter_fusion = _optional(bool, _AS_WRITTEN, already=False)
    filter_parallelization = _optional(bool, _AS_WRITTEN, already=False)
    inject_prefetch = _optional(bool, _AS_WRITTEN, already=False)
    map_and_batch_fusion = _optional(bool, _AS_WRITTEN, already=False)
    map_and_filter_fusion = _optional(bool, _AS_WRITTEN, already=False)
    map_fusion = _optional(bool, _AS_WRITTEN, already=False)
    map_parallelization = _optional(bool, _AS_WRITTEN, already=False)
    noop_elimination = _optional(bool, _AS_WRITTEN, already=False)
    parallel_batch = _optional(bool, _AS_WRITTEN, already=False)
    seq_interleave_prefetch = _optional(bool, _AS_WRITTEN, already=False)
    shuffle_and_repeat_fusion = _optional(bool, _AS_WRITTEN, already=False)


class ServiceOptions(OptionFields):
    """Options of the tf.data service (`ServiceOptions`), which is not here; no effect.

    Example:
      >>> import distlab as dl
      >>> dl.data.Options().experimental_service.pinned is None
      True
    """

    pinned = _optional(bool, "there is no tf.data service here", already=False)


class ThreadingOptions(OptionFields):
    """Options of tf.data's thread pools (`tf.data.ThreadingOptions`); they have no effect.

    Example:
      >>> import distlab as dl
      >>> dl.data.Options().threading.private_threadpool_size is None
      True
    """

    max_intra_op_parallelism = _optional(int, _NO_POOL)
    private_threadpool_size = _optional(int, _NO_POOL)


class Options(OptionFields):
    """Options of a dataset (`tf.data.Options`); `Dataset.with_options` attaches them.

    All of tf.data's fields are accepted, with its types. What distlab does differs
    for `experimental_distribute.auto_shard_policy` and `dataset_name` only: setting
    another field to anything but what is done in any case emits a `NoEffectWarning`, once
    in a process.

    Attributes:
      autotune: An `AutotuneOptions`.
      deterministic: Whether the order of elements is kept, as it always is.
      experimental_distribute: A `DistributeOptions`.
      experimental_external_state_policy: An `ExternalStatePolicy`.
      experimental_optimization: An `OptimizationOptions`.
      experimental_slack: Whether the last prefetch leaves time to the devices.
      experimental_symbolic_checkpoint: Whether saved positions are those in the
        sources, as they always are.
      experimental_service: A `ServiceOptions`.
      experimental_warm_start: Whether an iterator starts its threads when it is made.
      dataset_name: The name by which pages call the dataset, such as `"train"`.
      framework_type: The list of libraries that made the dataset.
      threading: A `ThreadingOptions`.
      experimental_deterministic: The former name of `deterministic`.
      experimental_threading: The former name of `threading`.

    Warns:
      NoEffectWarning: A field that has no effect was set.

    Example:
      >>> import distlab as dl
      >>> options = dl.data.Options()
      >>> options.experimental_distribute.auto_shard_policy = dl.data.AutoShardPolicy.DATA
      >>> dataset = dl.data.Dataset.range(4).with_options(options).batch(2)
      >>> dataset.options().experimental_distribute.auto_shard_policy
      <AutoShardPolicy.DATA: 2>
    """

    autotune = Field(AutotuneOptions, AutotuneOptions)
    deterministic = _optional(bool, "the order of elements is always kept", already=True)
    experimental_distribute = Field(DistributeOptions, DistributeOptions)
    experimental_external_state_policy = _optional(
        ExternalStatePolicy, "the state of an iterator is its position, and saves nothing outside"
    )
    experimental_optimization = Field(OptimizationOptions, OptimizationOptions)
    experimental_slack = _optional(bool, "prefetch reads whenever there is room", already=False)
    experimental_symbolic_checkpoint = _optional(
        bool, "the state of an iterator is always its position in the sources", already=True
    )
    experimental_service = Field(ServiceOptions, ServiceOptions)
    experimental_warm_start = _optional(bool, "an iterator starts its threads by itself")
    dataset_name = _optional(str, "")
    framework_type: Field[list[str] | None] = Field(
        list, lambda: None, no_effect="nothing is reported to anybody"
    )
    threading = Field(ThreadingOptions, ThreadingOptions)

    experimental_deterministic = deterministic
    experimental_threading = threading
