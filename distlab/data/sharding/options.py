"""Options of a dataset, which its transformations keep."""

from __future__ import annotations

import enum
import functools
import operator
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self, cast

from distlab.errors import ArgumentTypeError, OptionError
from distlab.text.shown import shown
from distlab.user_code import warn_no_effect

"""The fields whose missing effect this process has reported."""


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


@functools.cache
def _types(options: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(options)


class _Fields:
    """Base class of options: its fields have types, and later ones win in a merge."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets a field, by its former name too; warns once of one without effect."""
        name = name.removeprefix("experimental_") if name in _FORMER_NAMES else name
        called, fields = f"{type(self).__name__}.{name}", type(self).__dataclass_fields__
        if name not in fields:
            raise AttributeError(f"There is no field {called}; there are {', '.join(fields)}")
        if "_frozen" in vars(self):
            raise OptionError(
                "A change of the result of dataset.options() has no effect on the dataset, got "
                f"{called} = {shown(value)}. Set it in a distlab.data.Options() and pass that to "
                "dataset.with_options."
            )
        kind, described = _types(cast(Any, type(self)))[name], fields[name].metadata
        if not isinstance(value, kind):
            raise ArgumentTypeError(
                f"{called} must be of type {getattr(kind, '__name__', kind)}, got {shown(value)}. "
                "Leave it as it is for the default."
            )
        vars(self)[name] = value
        if described and value not in {None, described["already"]}:
            warn_no_effect(called, f": {described['why']}")

    def __repr__(self) -> str:
        """Shows the fields that are set."""
        shown_fields = (f"{name}={shown(value)}" for name, value in self._set_values())
        return f"{type(self).__name__}({', '.join(shown_fields)})"

    def merge(self, options: Self) -> Self:
        """Returns these options, overridden by those of others that are set.

        As in TensorFlow, a field with its default value counts as not set.

        Args:
          options: The others, of the same class.
        """
        result = type(self)()
        for each in (self, options):
            for name, value in each._set_values():
                earlier = vars(result)[name]
                vars(result)[name] = earlier.merge(value) if isinstance(value, _Fields) else value
        return result

    def frozen(self) -> Self:
        """Returns a copy that can't be changed."""
        result = type(self)().merge(self)
        for part in (result, *vars(result).values()):
            if isinstance(part, _Fields):
                vars(part)["_frozen"] = True
        return result

    def _set_values(self) -> Iterator[tuple[str, Any]]:
        """Yields the fields whose values are not the default ones."""
        for name, default in vars(type(self)()).items():
            if vars(self)[name] != default:
                yield name, vars(self)[name]


def _unused(why: str, already: Any = None) -> Any:
    """Returns a field without effect; `already` is the value for what is done in any case."""
    return field(default=None, metadata={"why": why, "already": already})


_FORMER_NAMES: Final = ("experimental_deterministic", "experimental_threading")
_NO_TUNING: Final = "the sizes of buffers are those that the verbs are given"
_AS_WRITTEN: Final = "a dataset does what its verbs say, in their order"
_NO_POOL: Final = "a dataset is read by the thread that iterates over it, and by those of prefetch"


@dataclass(repr=False)
class AutotuneOptions(_Fields):
    """Options of autotuning (`tf.data.experimental.AutotuneOptions`); they have no effect.

    Example:
      >>> import distlab as dl
      >>> options = dl.data.Options()
      >>> options.autotune.enabled = False
      >>> options.autotune
      AutotuneOptions(enabled=False)
    """

    enabled: bool | None = _unused(_NO_TUNING, already=False)
    cpu_budget: int | None = _unused(_NO_TUNING)
    ram_budget: int | None = _unused(_NO_TUNING)
    autotune_algorithm: AutotuneAlgorithm | None = _unused(_NO_TUNING)  # noqa: RUF009
    initial_parallelism: int | None = _unused(_NO_TUNING)
    min_parallelism: int | None = _unused(_NO_TUNING)


@dataclass(repr=False)
class DistributeOptions(_Fields):
    """Options of distribution (`tf.data.experimental.DistributeOptions`).

    Attributes:
      auto_shard_policy: The division of the dataset over workers; `AUTO` by default.
      num_devices: Has no effect: a strategy knows its devices.

    Example:
      >>> import distlab as dl
      >>> dl.data.DistributeOptions().auto_shard_policy
      <AutoShardPolicy.AUTO: 0>
    """

    auto_shard_policy: AutoShardPolicy = AutoShardPolicy.AUTO
    num_devices: int | None = _unused("a strategy knows its devices")


@dataclass(repr=False)
class OptimizationOptions(_Fields):
    """Options of tf.data's graph rewrites (`OptimizationOptions`); they have no effect.

    Example:
      >>> import distlab as dl
      >>> options = dl.data.Options()
      >>> options.experimental_optimization.map_fusion = False
      >>> options.experimental_optimization
      OptimizationOptions(map_fusion=False)
    """

    apply_default_optimizations: bool | None = _unused(_AS_WRITTEN, already=False)
    filter_fusion: bool | None = _unused(_AS_WRITTEN, already=False)
    filter_parallelization: bool | None = _unused(_AS_WRITTEN, already=False)
    inject_prefetch: bool | None = _unused(_AS_WRITTEN, already=False)
    map_and_batch_fusion: bool | None = _unused(_AS_WRITTEN, already=False)
    map_and_filter_fusion: bool | None = _unused(_AS_WRITTEN, already=False)
    map_fusion: bool | None = _unused(_AS_WRITTEN, already=False)
    map_parallelization: bool | None = _unused(_AS_WRITTEN, already=False)
    noop_elimination: bool | None = _unused(_AS_WRITTEN, already=False)
    parallel_batch: bool | None = _unused(_AS_WRITTEN, already=False)
    seq_interleave_prefetch: bool | None = _unused(_AS_WRITTEN, already=False)
    shuffle_and_repeat_fusion: bool | None = _unused(_AS_WRITTEN, already=False)


@dataclass(repr=False)
class ThreadingOptions(_Fields):
    """Options of tf.data's thread pools (`tf.data.ThreadingOptions`); they have no effect.

    Example:
      >>> import distlab as dl
      >>> dl.data.Options().threading.private_threadpool_size is None
      True
    """

    max_intra_op_parallelism: int | None = _unused(_NO_POOL)
    private_threadpool_size: int | None = _unused(_NO_POOL)


@dataclass(repr=False)
class Options(_Fields):
    """Options of a dataset (`tf.data.Options`); `Dataset.with_options` attaches them.

    tf.data's fields are accepted, with its types. What distlab does differs
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
      experimental_warm_start: Whether an iterator starts its threads when it is made.
      dataset_name: The name by which pages call the dataset, such as `"train"`.
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

    autotune: AutotuneOptions = field(default_factory=AutotuneOptions)
    deterministic: bool | None = _unused("the order of elements is always kept", already=True)
    experimental_distribute: DistributeOptions = field(default_factory=DistributeOptions)
    experimental_external_state_policy: ExternalStatePolicy | None = _unused(  # noqa: RUF009
        "the state of an iterator is its position, and saves nothing outside"
    )
    experimental_optimization: OptimizationOptions = field(default_factory=OptimizationOptions)
    experimental_slack: bool | None = _unused(
        "prefetch reads whenever there is room", already=False
    )
    experimental_symbolic_checkpoint: bool | None = _unused(
        "the state of an iterator is always its position in the sources", already=True
    )
    experimental_warm_start: bool | None = _unused("an iterator starts its threads by itself")
    dataset_name: str | None = None
    threading: ThreadingOptions = field(default_factory=ThreadingOptions)

    experimental_deterministic = cast(Any, property(operator.attrgetter("deterministic")))
    experimental_threading = cast(Any, property(operator.attrgetter("threading")))
