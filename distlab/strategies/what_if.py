"""The effects of a strategy's choices: how batches, variables and gradient sums are distributed.

Nothing runs on a device: the code of distributed input divides the batches, and the
algorithms of reductions are only traced. So there may be more replicas than devices.
"""

from __future__ import annotations

import math
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
from distlab.data.plan.engine import Pass
from distlab.data.sharding.auto_shard import effective_policy
from distlab.devices.layouts import LayoutName
from distlab.devices.mesh import AXIS
from distlab.errors import ArgumentValueError
from distlab.input.context import InputContext
from distlab.input.distribute import replica_steps, steps_of
from distlab.step.jaxprs import operations
from distlab.text.counts import is_count, is_positive_count
from distlab.text.shown import shown

MOST_REPLICAS: Final = 16
MOST_EXAMPLES: Final = 2_000
MOST_BYTES: Final = 1 << 40

STRATEGIES: Final[dict[str, LayoutName]] = {
    "MirroredStrategy": "replicated",
    "OneDeviceStrategy": "single",
    "CentralStorageStrategy": "single",
    "MultiWorkerMirroredStrategy": "replicated",
}
"""Each strategy's layout of a variable whose replicas share one value."""

POLICIES: Final = ("AUTO", "DATA", "OFF", "FROM FUNCTION")
"""The ways to divide input: an `AutoShardPolicy`, or the batches of a dataset function."""

ALGORITHMS: Final[tuple[CrossDeviceOps, ...]] = (
    NcclAllReduce(),
    ReductionToOneDevice(),
    HierarchicalCopyAllReduce(),
)
_WORKERS: Final = 2
_DTYPES: Final = ("float32", "bfloat16", "float16", "int32")


@dataclass(frozen=True)
class Choices:
    """A strategy, its input and a variable; a batch of FROM FUNCTION is that of one replica."""

    strategy: str = "MirroredStrategy"
    replicas: int = 8
    batch: int = 64
    examples: int = 300
    policy: str = "AUTO"
    shape: tuple[int, ...] = (784, 128)
    dtype: str = "float32"

    @property
    def workers(self) -> int:
        """The number of workers that read the input."""
        return _WORKERS if self.strategy == "MultiWorkerMirroredStrategy" else 1

    def checked(self) -> Choices:
        """Returns the choices, with one replica for `OneDeviceStrategy`."""
        for name, most in (
            ("replicas", MOST_REPLICAS), ("batch", MOST_EXAMPLES), ("examples", MOST_EXAMPLES)
        ):  # fmt: skip
            value = getattr(self, name)
            if not is_positive_count(value, most):
                raise ArgumentValueError(
                    f"{name} must be a whole number from 1 to {most}, got {shown(value)}."
                )
        for name, known in (
            ("strategy", tuple(STRATEGIES)), ("policy", POLICIES), ("dtype", _DTYPES)
        ):  # fmt: skip
            value = getattr(self, name)
            if value not in known:
                raise ArgumentValueError(
                    f"{name} must be one of {', '.join(known)}, got {shown(value)}."
                )
        if not all(map(is_count, self.shape)) or self.bytes > MOST_BYTES:
            raise ArgumentValueError(
                "shape must be whole numbers, and the variable below 1 TB, got "
                f"{shown(self.shape)}. Write for example 784, 128."
            )
        if self.replicas % self.workers:
            raise ArgumentValueError(
                f"{self.workers} workers have the same number of replicas each, so the number of "
                f"all replicas must be even, got {self.replicas}. Choose {self.replicas + 1}."
            )
        return replace(self, replicas=1) if self.strategy == "OneDeviceStrategy" else self

    @property
    def bytes(self) -> int:
        """The bytes of one copy of the variable."""
        return math.prod(self.shape) * jax.numpy.dtype(self.dtype).itemsize


class Division(NamedTuple):
    """An epoch's division: examples of a full share, and each step's sizes and first examples."""

    share: int
    sizes: list[list[int]]
    first: list[list[int | None]]


class Movement(NamedTuple):
    """The messages of an all-reduce by kind, and the sends of each replica for each message."""

    algorithm: str
    messages: dict[str, int]
    sends: list[Counter[int]]


def divide(choices: Choices) -> Division:
    """Divides the batches of one epoch, without placing them."""
    dataset = Dataset.range(choices.examples).batch(choices.batch)
    each = choices.replicas // choices.workers
    by_worker = [_worker_steps(_reader(dataset, choices, n, each)) for n in range(choices.workers)]
    exhausted = _WorkerStep([0] * each, [None] * each)  # of a worker whose data ends first
    steps = list(zip_longest(*by_worker, fillvalue=exhausted))
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


def _reader(dataset: Dataset, choices: Choices, worker: int, replicas: int) -> Pass:
    context = InputContext(choices.workers, worker, choices.replicas)
    if choices.policy == "FROM FUNCTION":
        return replica_steps([dataset.shard(choices.workers, worker)], replicas).open()
    options = Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy[choices.policy]
    # Resolved first: resolving AUTO while reading would log a warning at each change.
    options.experimental_distribute.auto_shard_policy = effective_policy(
        dataset.with_options(options)
    )
    dataset = dataset.with_options(options)
    return steps_of(dataset, context, replicas).open()


class _WorkerStep(NamedTuple):
    """The sizes and first examples of one worker's replicas in a step."""

    sizes: list[int]
    first: list[int | None]


def _worker_steps(reader: Pass) -> list[_WorkerStep]:
    steps: list[_WorkerStep] = []
    for step in reader:
        starts = np.cumsum([0, *step.sizes[:-1]])
        indices = step.indices
        first = [
            int(indices[start]) if indices is not None and size else None
            for start, size in zip(starts, step.sizes, strict=True)
        ]
        steps.append(_WorkerStep(list(step.sizes), first))
    return steps


def _movement(ops: CrossDeviceOps, choices: Choices) -> Movement:
    value = jax.ShapeDtypeStruct(choices.shape, choices.dtype)
    traced = jax.make_jaxpr(
        lambda array: ops.sum_in_program([array], choices.replicas),
        axis_env=[(AXIS, choices.replicas)],
    )(value)
    messages: Counter[str] = Counter()
    sends = []
    for equation in traced.eqns:
        pairs = operations.permutation(equation)
        if pairs is not None:
            messages["collective-permute"] += 1
            sends.append(Counter(source for source, _ in pairs))
        elif operations.is_all_reduce(equation):
            messages["all-reduce"] += 1
            sends.append(Counter())
    return Movement(type(ops).__name__, dict(messages), sends)
