"""What would happen with other choices: batches divided, variables placed, sums formed.

Nothing runs on a device: batches are divided by the input's own code, and the
algorithms of reductions are traced. So there may be more replicas than devices.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final, NamedTuple

import jax
import numpy as np
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from distlab.collectives.cross_device_ops import (
    CrossDeviceOps,
    HierarchicalCopyAllReduce,
    NcclAllReduce,
    ReductionToOneDevice,
)
from distlab.data import AutoShardPolicy, Dataset, Options
from distlab.data._auto_shard import effective_policy
from distlab.devices import jaxprs
from distlab.devices.layouts import LayoutName
from distlab.devices.mesh import AXIS
from distlab.errors import ArgumentValueError
from distlab.input._steps import Reader
from distlab.input.context import InputContext
from distlab.input.distribute import replica_steps, steps_of
from distlab.text.counts import is_count

MOST_REPLICAS: Final = 16
MOST_EXAMPLES: Final = 2_000
MOST_BYTES: Final = 1 << 40

STRATEGIES: Final[dict[str, LayoutName]] = {
    "MirroredStrategy": "replicated",
    "OneDeviceStrategy": "single",
    "CentralStorageStrategy": "single",
    "MultiWorkerMirroredStrategy": "replicated",
}
"""How each strategy lays a variable out, unless its replicas write to it one by one."""

POLICIES: Final = ("AUTO", "DATA", "OFF", "FROM FUNCTION")
"""How input is divided: an `AutoShardPolicy`, or batches of a dataset function."""

ALGORITHMS: Final[tuple[CrossDeviceOps, ...]] = (
    NcclAllReduce(),
    ReductionToOneDevice(),
    HierarchicalCopyAllReduce(),
)
_WORKERS: Final = 2
_DTYPES: Final = ("float32", "bfloat16", "float16", "int32")


@dataclass(frozen=True)
class Choices:
    """What somebody may choose.

    Attributes:
      strategy: one of `STRATEGIES`.
      replicas: how many, of all workers together.
      batch: examples in a batch: a global one, or with a dataset function that of
        one replica.
      examples: examples in the dataset.
      policy: one of `POLICIES`.
      shape: of a variable.
      dtype: of the variable.
    """

    strategy: str = "MirroredStrategy"
    replicas: int = 8
    batch: int = 64
    examples: int = 300
    policy: str = "AUTO"
    shape: tuple[int, ...] = (784, 128)
    dtype: str = "float32"

    @property
    def workers(self) -> int:
        """How many workers read the input."""
        return _WORKERS if self.strategy == "MultiWorkerMirroredStrategy" else 1

    def checked(self) -> Choices:
        """Returns choices that fit together: `OneDeviceStrategy` has one replica.

        Raises:
          ArgumentValueError: one of them can't be; says which, and what can.
        """
        for name, most in (
            ("replicas", MOST_REPLICAS), ("batch", MOST_EXAMPLES), ("examples", MOST_EXAMPLES)
        ):  # fmt: skip
            given = getattr(self, name)
            if not is_count(given, most) or given == 0:
                raise ArgumentValueError(
                    f"{name} must be a whole number from 1 to {most}, got {given!r:.80}."
                )
        for name, known in (
            ("strategy", tuple(STRATEGIES)), ("policy", POLICIES), ("dtype", _DTYPES)
        ):  # fmt: skip
            given = getattr(self, name)
            if given not in known:
                raise ArgumentValueError(
                    f"{name} must be one of {', '.join(known)}, got {given!r:.80}."
                )
        if not all(map(is_count, self.shape)) or self.bytes > MOST_BYTES:
            raise ArgumentValueError(
                "shape must be whole numbers, and the variable below 1 TB, got "
                f"{self.shape!r:.80}. Write for example 784, 128."
            )
        if self.replicas % self.workers:
            raise ArgumentValueError(
                f"{self.workers} workers have equally many replicas each, so their number must "
                f"be even, got {self.replicas}. Choose {self.replicas + 1}."
            )
        return replace(self, replicas=1) if self.strategy == "OneDeviceStrategy" else self

    @property
    def bytes(self) -> int:
        """Bytes of one copy of the variable."""
        size = 1
        for length in self.shape:
            size *= length
        return size * jax.numpy.dtype(self.dtype).itemsize


class Division(NamedTuple):
    """How the batches of one epoch are divided.

    Attributes:
      share: examples that a replica gets of a full batch.
      sizes: for each step, how many examples each replica gets.
      first: for each step, each replica's first example; None where it gets none.
    """

    share: int
    sizes: list[list[int]]
    first: list[list[int | None]]


class Movement(NamedTuple):
    """What one all-reduce of the variable's gradient would move inside a step.

    Attributes:
      algorithm: class name of the algorithm.
      messages: kind of collective to how many there are, one after the other.
      sends: for each message, how often each replica sends; empty for a collective
        in which all take part alike.
    """

    algorithm: str
    messages: dict[str, int]
    sends: list[Counter[int]]


def divide(choices: Choices) -> Division:
    """Divides the batches of one epoch, without putting them anywhere."""
    dataset = Dataset.range(choices.examples).batch(choices.batch)
    each = choices.replicas // choices.workers
    parts = [_read(_reader(dataset, choices, n, each)) for n in range(choices.workers)]
    none_left = _Part([0] * each, [None] * each)  # for a worker whose data ended before others'
    steps = list(zip_longest(*parts, fillvalue=none_left))
    sizes = [[size for part in step for size in part.sizes] for step in steps]
    first = [[start for part in step for start in part.first] for step in steps]
    return Division(max(map(max, sizes)), sizes, first)


def place(choices: Choices) -> list[int]:
    """Returns the bytes of one variable on each replica's device."""
    layout = STRATEGIES[choices.strategy]
    if layout == "single":
        return [choices.bytes, *[0] * (choices.replicas - 1)]
    mesh = AbstractMesh((choices.replicas,), (AXIS,))
    local = NamedSharding(mesh, PartitionSpec()).shard_shape(choices.shape)
    return [replace(choices, shape=tuple(local)).bytes] * choices.replicas


def move(choices: Choices) -> list[Movement]:
    """Traces each algorithm's sum of the variable's gradients inside a step."""
    return [_movement(ops, choices) for ops in ALGORITHMS]


def _reader(dataset: Dataset, choices: Choices, worker: int, replicas: int) -> Reader:
    context = InputContext(choices.workers, worker, choices.replicas)
    if choices.policy == "FROM FUNCTION":
        return replica_steps([dataset.shard(choices.workers, worker)], replicas).open()
    options = Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy[choices.policy]
    # What AUTO comes to is chosen first, so that nobody is warned of it at each change.
    options.experimental_distribute.auto_shard_policy = effective_policy(
        dataset.with_options(options)
    )
    dataset = dataset.with_options(options)
    return steps_of(dataset, context, replicas, may_read=True).open()


class _Part(NamedTuple):
    """What one worker's replicas get in a step."""

    sizes: list[int]
    first: list[int | None]


def _read(reader: Reader) -> list[_Part]:
    parts: list[_Part] = []
    while True:
        try:
            step = reader.read()
        except StopIteration:
            return parts
        starts = [end - size for end, size in zip(np.cumsum(step.sizes), step.sizes, strict=True)]
        places = step.indices
        first = [
            int(places[start]) if places is not None and size else None
            for start, size in zip(starts, step.sizes, strict=True)
        ]
        parts.append(_Part(list(step.sizes), first))


def _movement(ops: CrossDeviceOps, choices: Choices) -> Movement:
    value = jax.ShapeDtypeStruct(choices.shape, choices.dtype)
    traced = jax.make_jaxpr(
        lambda array: ops.sum_in_program([array], choices.replicas),
        axis_env=[(AXIS, choices.replicas)],
    )(value)
    messages: Counter[str] = Counter()
    sends = []
    for equation in traced.eqns:
        pairs = jaxprs.permutation(equation)
        if pairs is not None:
            messages["collective-permute"] += 1
            sends.append(Counter(source for source, _ in pairs))
        elif jaxprs.is_all_reduce(equation):
            messages["all-reduce"] += 1
            sends.append(Counter())
    return Movement(type(ops).__name__, dict(messages), sends)
