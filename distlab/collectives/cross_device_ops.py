"""Algorithms that bring the replicas' values together across devices.

Each really moves data in its own way, from Python and inside a compiled
program, and the pages show which one ran. Results are the same up to the
order of additions.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.devices import selection
from distlab.devices.jax_internals import is_ready
from distlab.devices.mesh import AXIS, ReplicaMesh
from distlab.devices.pieces import pieces
from distlab.devices.selection import DeviceLike
from distlab.errors import OptionError, ValueShapeError
from distlab.values.checks import as_array

_SMALL_BYTES: Final = 1 << 16
_LARGE_BYTES: Final = 1 << 20


class CrossDeviceOps(ABC):
    """Base of the algorithms (`tf.distribute.CrossDeviceOps`).

    Attributes:
      algorithm: the name that events and pages give it.
    """

    algorithm: ClassVar[str]

    def chosen(self, mesh: ReplicaMesh, row_bytes: int) -> CrossDeviceOps:
        """Returns the algorithm to use for a value: this one.

        Args:
          mesh: where the replicas are.
          row_bytes: bytes of one replica's value.
        """
        del mesh, row_bytes
        return self

    @abstractmethod
    def sum_rows(self, stacked: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Adds up the rows of `(replicas, ...)`; the sum is on one device or on all."""

    @abstractmethod
    def sum_in_program(self, values: list[jax.Array], replicas: int) -> list[jax.Array]:
        """Adds up every replica's arrays inside a program over the mesh; all get the sums."""

    def __repr__(self) -> str:
        """Writes the class name."""
        return f"{type(self).__name__}()"


@final
class ReductionToOneDevice(CrossDeviceOps):
    """Copies all values to one device, adds them up there, and copies the sum back.

    Args:
      reduce_to_device: where to add up; by default the first replica's device.
      accumulation_fn: takes the list of values and returns their sum; by
        default they are added in replica order.

    Raises:
      DeviceError: the device does not exist.
    """

    algorithm = "to_one_device"

    def __init__(
        self,
        reduce_to_device: DeviceLike | None = None,
        accumulation_fn: Callable[[list[jax.Array]], jax.Array] | None = None,
    ) -> None:
        if accumulation_fn is not None and not callable(accumulation_fn):
            raise OptionError(
                f"accumulation_fn must be a function of a list of arrays, got {accumulation_fn!r}."
            )
        self._device = None if reduce_to_device is None else selection.find([reduce_to_device])[0]
        self._accumulate = accumulation_fn

    def sum_rows(self, stacked: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Adds up on the one device."""
        home = self._device or mesh.local_devices[0]
        small = stacked.nbytes // mesh.replicas <= _SMALL_BYTES
        if self._accumulate is None and (small or isinstance(stacked, jax.core.Tracer)):
            return add_rows(stacked if isinstance(stacked, jax.core.Tracer) else _at(stacked, home))
        # Large rows: views of the pieces, without building the stacked array on one device.
        rows = jax.device_put(_movable(stacked, home), home)
        if self._accumulate is None:
            return _add_up(*rows)
        return self._accumulated([row[0] for row in rows])

    def sum_in_program(self, values: list[jax.Array], replicas: int) -> list[jax.Array]:
        """Sends every replica's arrays to one, and the sum to every other one."""
        return [self._through_one(value, replicas) for value in values]

    def _through_one(self, value: jax.Array, replicas: int) -> jax.Array:
        others = range(1, replicas)
        arrived = [value, *(jax.lax.ppermute(value, AXIS, [(other, 0)]) for other in others)]
        if self._accumulate is None:
            total = functools.reduce(jnp.add, arrived)
        else:
            total = self._accumulated(arrived)
        sent = [jax.lax.ppermute(total, AXIS, [(0, other)]) for other in others]
        mine = jnp.where(jax.lax.axis_index(AXIS) == 0, total, jnp.zeros_like(total))
        return functools.reduce(jnp.add, sent, mine)  # each replica was sent one sum and zeros

    def _accumulated(self, values: list[jax.Array]) -> jax.Array:
        assert self._accumulate is not None
        total = as_array(self._accumulate(values), "accumulation_fn's result")
        if total.shape != values[0].shape:
            raise ValueShapeError(
                "accumulation_fn must return one array of the values' shape "
                f"{list(values[0].shape)}, got one of shape {list(total.shape)}. Give a function "
                "of a list of arrays, such as sum."
            )
        return total


@final
class HierarchicalCopyAllReduce(CrossDeviceOps):
    """Adds up in pairs, then pairs of pairs, and copies the sum back the same way.

    Args:
      num_packs: how many parts to send a value in; 0 or 1 sends it whole.

    Raises:
      OptionError: `num_packs` is negative.
    """

    algorithm = "hierarchical_copy"

    def __init__(self, num_packs: int = 1) -> None:
        if type(num_packs) is not int or num_packs < 0:
            raise OptionError(
                f"num_packs must be a whole number, 0 or more, got {num_packs!r}. Use 1 to send "
                "each value whole."
            )
        self.num_packs = num_packs

    def sum_rows(self, stacked: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Adds up pairwise across devices; the sum is on the first one."""
        if isinstance(stacked, jax.core.Tracer):
            return add_rows(stacked)
        rows = dict(pieces(stacked))
        for pairs in _rounds(mesh.replicas):
            for source, target in pairs:
                rows[target] = rows[target] + jax.device_put(rows[source], mesh.devices[target])
        return rows[0][0]

    def sum_in_program(self, values: list[jax.Array], replicas: int) -> list[jax.Array]:
        """Adds up in rounds of pairs, and sends the sum back in the same rounds."""
        return [self._packed(value, replicas) for value in values]

    def _packed(self, value: jax.Array, replicas: int) -> jax.Array:
        packs = max(1, min(self.num_packs, value.size))
        parts = jnp.array_split(value.ravel(), packs)
        return jnp.concatenate([_tree_sum(part, replicas) for part in parts]).reshape(value.shape)


@final
class NcclAllReduce(CrossDeviceOps):
    """The platform's own all-reduce.

    That is NCCL on NVIDIA GPUs, XLA's shared-memory all-reduce on CPU devices,
    and the interconnect's all-reduce on TPUs.

    Args:
      num_packs: taken for TensorFlow's sake; XLA packs by itself.

    Raises:
      OptionError: `num_packs` is negative.
    """

    algorithm = "all_reduce"

    def __init__(self, num_packs: int = 1) -> None:
        if type(num_packs) is not int or num_packs < 0:
            raise OptionError(f"num_packs must be a whole number, 0 or more, got {num_packs!r}.")
        self.num_packs = num_packs

    def sum_rows(self, stacked: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Adds up with one collective; the sum is on every device."""
        return add_rows(stacked) if isinstance(stacked, jax.core.Tracer) else _psum(mesh)(stacked)

    def sum_in_program(self, values: list[jax.Array], replicas: int) -> list[jax.Array]:
        """Adds up with one collective for all arrays, which XLA may combine."""
        del replicas
        return list(jax.lax.psum(values, AXIS))


@final
class ChosenBySize(CrossDeviceOps):
    """What a strategy uses when none is given: the fastest that was measured.

    Inside a program that is the platform's all-reduce. From Python, adding up
    on one device was faster on CPU devices at every size (8 replicas: 0.03
    against 0.2 ms at 1 KB, 0.19 against 0.40 at 1 MB, 51 against 136 at 64 MB);
    on GPUs and TPUs it is used up to 1 MB, and the all-reduce above.
    """

    algorithm = "by_size"

    def chosen(self, mesh: ReplicaMesh, row_bytes: int) -> CrossDeviceOps:
        """Returns the algorithm for a value of this size."""
        on_cpu = mesh.devices[0].platform == "cpu"
        return _TO_ONE if on_cpu or row_bytes <= _SMALL_BYTES else _ALL_REDUCE

    def sum_rows(self, stacked: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Adds up with the algorithm for this size."""
        return self.chosen(mesh, stacked.nbytes // mesh.replicas).sum_rows(stacked, mesh)

    def sum_in_program(self, values: list[jax.Array], replicas: int) -> list[jax.Array]:
        """Adds up with the platform's all-reduce."""
        return _ALL_REDUCE.sum_in_program(values, replicas)


_TO_ONE: Final = ReductionToOneDevice()
_ALL_REDUCE: Final = NcclAllReduce()


@jax.jit
def add_rows(stacked: jax.Array) -> jax.Array:
    """Returns the sum over the first axis, in the same dtype."""
    return jnp.sum(stacked, axis=0, dtype=stacked.dtype)


@jax.jit
def _add_up(first: jax.Array, *others: jax.Array) -> jax.Array:
    return functools.reduce(jnp.add, others, first)[0]


def _movable(stacked: jax.Array, home: jax.Device) -> list[Any]:
    """Returns the rows in the form in which they are on another device soonest.

    CPU devices share one memory, so a view of a row that is there need not be
    copied: 52 ms in place of 104 for 8 rows of 64 MB. A view of one that is not
    there yet would be waited for.
    """
    rows = [row for _, row in pieces(stacked)]
    large = stacked.nbytes // len(rows) >= _LARGE_BYTES
    if large and home.platform == "cpu" and is_ready(stacked):
        return [np.asarray(row) for row in rows]
    return rows


def _at(stacked: jax.Array, device: jax.Device) -> jax.Array:
    return jax.device_put(stacked, device)


@functools.cache
def _psum(mesh: ReplicaMesh) -> Callable[[jax.Array], jax.Array]:
    spec = mesh.split.spec
    total = jax.shard_map(
        lambda row: jax.lax.psum(row[0], AXIS),
        mesh=mesh.mesh,
        in_specs=spec,
        out_specs=mesh.whole.spec,
        check_vma=False,
    )
    function: Callable[[jax.Array], jax.Array] = jax.jit(total)
    return function


def _rounds(replicas: int) -> list[list[tuple[int, int]]]:
    """Returns the pairs `(source, target)` of each round of a tree that ends at 0."""
    rounds = []
    stride = 1
    while stride < replicas:
        rounds.append([(i + stride, i) for i in range(0, replicas - stride, 2 * stride)])
        stride *= 2
    return rounds


def _tree_sum(value: jax.Array, replicas: int) -> jax.Array:
    rank = jax.lax.axis_index(AXIS)
    rounds = _rounds(replicas)
    for pairs in rounds:
        value = value + jax.lax.ppermute(value, AXIS, pairs)
    for pairs in reversed(rounds):
        back = [(target, source) for source, target in pairs]
        received = jax.lax.ppermute(value, AXIS, back)
        told = functools.reduce(jnp.logical_or, [rank == target for _, target in back])
        value = jnp.where(told, received, value)
    return value


def as_cross_device_ops(ops: Any) -> CrossDeviceOps:
    """Returns the algorithm given, or the default for None.

    Raises:
      OptionError: it is no `CrossDeviceOps`.
    """
    if ops is None:
        return ChosenBySize()
    if not isinstance(ops, CrossDeviceOps):
        raise OptionError(
            f"cross_device_ops must be a CrossDeviceOps such as NcclAllReduce(), got {ops!r:.80}."
        )
    return ops
