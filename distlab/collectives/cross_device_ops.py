"""Algorithms that sum the replicas' values across devices.

Each moves data in its own way, from Python and inside a compiled program, and the
pages show which one ran. Results are equal up to the order of additions.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.collectives.host_sums import can_sum, host_sum
from distlab.devices import selection
from distlab.devices.combining import summing, sums_of_rows
from distlab.devices.jax_internals import is_ready
from distlab.devices.mesh import AXIS, SAME_ON_ALL, ReplicaMesh
from distlab.devices.pieces import moved, pieces
from distlab.devices.selection import DeviceLike
from distlab.errors import OptionError, ValueShapeError
from distlab.text.counts import is_count
from distlab.text.shown import shown
from distlab.values.checks import as_array

_SMALL_BYTES: Final = 1 << 16
_MOST_PACKS: Final = (1 << 31) - 1


class CrossDeviceOps(ABC):
    """Base class of the algorithms (`tf.distribute.CrossDeviceOps`).

    Attributes:
      algorithm: The name that events and pages show.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(cross_device_ops=dl.HierarchicalCopyAllReduce())
      >>> strategy.cross_device_ops, isinstance(strategy.cross_device_ops, dl.CrossDeviceOps)
      (HierarchicalCopyAllReduce(), True)
    """

    algorithm: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Names a user's own algorithm by its class where it has no name."""
        if "algorithm" not in {name for base in cls.__mro__ for name in vars(base)}:
            cls.algorithm = cls.__name__

    def chosen(self, mesh: ReplicaMesh, row_bytes: int) -> CrossDeviceOps:
        """Returns the algorithm for a value of this size; by default this one.

        Args:
          mesh: The mesh of the replicas.
          row_bytes: The bytes of one replica's value.
        """
        del mesh, row_bytes
        return self

    @abstractmethod
    def sum_rows(self, stacked: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Returns the sum of the rows of `(replicas, ...)`, on one device or on all."""

    def sum_nest(self, several: list[jax.Array], mesh: ReplicaMesh) -> list[jax.Array]:
        """Returns the sum of the rows of each of several arrays, where possible by one program."""
        return [self.sum_rows(stacked, mesh) for stacked in several]

    @abstractmethod
    def sum_in_program(self, values: list[jax.Array], replicas: int) -> list[jax.Array]:
        """Returns the sums of the replicas' arrays, on all replicas of a program over the mesh."""

    def same_sums(self, values: list[jax.Array], replicas: int) -> list[jax.Array]:
        """Returns what `sum_in_program` does, marked as the same on all replicas.

        Args:
          values: This replica's arrays.
          replicas: The number of replicas.
        """

        def sums(values: list[jax.Array]) -> list[jax.Array]:
            return self.sum_in_program(values, replicas)

        sums.__name__ = SAME_ON_ALL
        return jax.jit(sums)(values)

    def __repr__(self) -> str:
        """Shows the class."""
        return f"{type(self).__name__}()"


@final
class ReductionToOneDevice(CrossDeviceOps):
    """Copies to one device, which sums the values, and copies of the sum back.

    Args:
      reduce_to_device: The device that sums; by default the first replica's.
      accumulation_fn: A function of the list of values that returns their sum; by
        default the values are added in replica order.

    Raises:
      DeviceError: The device does not exist.
      OptionError: `accumulation_fn` is not a function.

    Example:
      >>> import distlab as dl
      >>> ops = dl.ReductionToOneDevice(reduce_to_device="CPU:1")
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=ops)
      >>> ids = strategy.run(lambda: dl.get_replica_context().replica_id_in_sync_group)
      >>> total = strategy.reduce("SUM", ids, axis=None)
      >>> int(total), total.devices()
      (1, {CpuDevice(id=1)})
    """

    algorithm = "to_one_device"

    def __init__(
        self,
        reduce_to_device: DeviceLike | None = None,
        accumulation_fn: Callable[[list[jax.Array]], jax.Array] | None = None,
    ) -> None:
        if accumulation_fn is not None and not callable(accumulation_fn):
            raise OptionError(
                "accumulation_fn must be a function of a list of arrays, got "
                f"{shown(accumulation_fn)}. Leave it out to add the values in replica order."
            )
        self._device = None if reduce_to_device is None else selection.find([reduce_to_device])[0]
        self._accumulate = accumulation_fn

    def sum_rows(self, stacked: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Returns the sum of the rows, on the one device."""
        if isinstance(stacked, jax.core.Tracer):
            return add_rows(stacked) if self._accumulate is None else self._accumulated([*stacked])
        home = self._device or mesh.local_devices[0]
        if self._accumulate is None and _is_small(stacked, mesh):
            return add_rows(moved(stacked, home))
        # Large rows move one by one, so that the stacked array is not built on one device.
        rows = _rows_to_move(stacked, home)
        if self._accumulate is not None:
            return self._accumulated([row[0] for row in jax.device_put(rows, home)])
        if isinstance(rows[0], np.ndarray) and can_sum(stacked.dtype):
            return jax.device_put(host_sum(rows)[0], home)
        return _add_up(*jax.device_put(rows, home))

    def sum_nest(self, several: list[jax.Array], mesh: ReplicaMesh) -> list[jax.Array]:
        """Returns the sums, on the one device; those of small arrays by one program."""
        if self._accumulate is not None:
            return super().sum_nest(several, mesh)
        small = [stacked for stacked in several if _is_small(stacked, mesh)]
        if small and not isinstance(small[0], jax.core.Tracer):
            small = moved(small, self._device or mesh.local_devices[0])
        sums = iter(_add_rows_of_each(small))
        return [
            next(sums) if _is_small(stacked, mesh) else self.sum_rows(stacked, mesh)
            for stacked in several
        ]

    def sum_in_program(self, values: list[jax.Array], replicas: int) -> list[jax.Array]:
        """Sends the arrays of all replicas to the first, and the sum back to the others."""
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
        return functools.reduce(jnp.add, sent, mine)  # each replica receives one sum and zeros

    def _accumulated(self, values: list[jax.Array]) -> jax.Array:
        assert self._accumulate is not None
        total = as_array(self._accumulate(values), "accumulation_fn's result")
        if total.shape != values[0].shape:
            raise ValueShapeError(
                "accumulation_fn must return one array of the values' shape "
                f"{list(values[0].shape)}, got one of shape {list(total.shape)}. Pass a function "
                "of a list of arrays, such as sum."
            )
        return total


@final
class HierarchicalCopyAllReduce(CrossDeviceOps):
    """Sums of pairs of replicas, then of pairs of pairs, and copies back the same way.

    Args:
      num_packs: The number of parts in which a value is sent; 0 or 1 sends it whole.

    Raises:
      OptionError: `num_packs` is negative or not a whole number.

    Example:
      >>> import distlab as dl
      >>> ops = dl.HierarchicalCopyAllReduce(num_packs=2)
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"], cross_device_ops=ops)
      >>> ids = strategy.run(lambda: dl.get_replica_context().replica_id_in_sync_group)
      >>> int(strategy.reduce("SUM", ids, axis=None))
      3
    """

    algorithm = "hierarchical_copy"

    def __init__(self, num_packs: int = 1) -> None:
        self.num_packs = _checked_packs(num_packs)

    def sum_rows(self, stacked: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Returns the sum of the rows, on the first device."""
        if isinstance(stacked, jax.core.Tracer):
            return add_rows(stacked)
        rows = dict(pieces(stacked))
        for pairs in _rounds(mesh.replicas):
            for source, target in pairs:
                rows[target] = rows[target] + jax.device_put(rows[source], mesh.devices[target])
        return rows[0][0]

    def sum_in_program(self, values: list[jax.Array], replicas: int) -> list[jax.Array]:
        """Sums in rounds of pairs, and sends the sum back in the same rounds."""
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
      num_packs: Accepted for compatibility with TensorFlow; XLA packs by itself.

    Raises:
      OptionError: `num_packs` is negative or not a whole number.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=dl.NcclAllReduce())
      >>> ids = strategy.run(lambda: dl.get_replica_context().replica_id_in_sync_group)
      >>> total = strategy.reduce("SUM", ids, axis=None)
      >>> int(total), len(total.devices())
      (1, 2)
    """

    algorithm = "all_reduce"

    def __init__(self, num_packs: int = 1) -> None:
        self.num_packs = _checked_packs(num_packs)

    def sum_rows(self, stacked: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Returns the sum of the rows by one collective, on every device."""
        return self.sum_nest([stacked], mesh)[0]

    def sum_nest(self, several: list[jax.Array], mesh: ReplicaMesh) -> list[jax.Array]:
        """Returns the sums by one program whose collectives XLA may combine, on every device."""
        if any(isinstance(stacked, jax.core.Tracer) for stacked in several):
            return _add_rows_of_each(several)
        return sums_of_rows(several, mesh) if mesh.shared else summing(mesh)(several)

    def sum_in_program(self, values: list[jax.Array], replicas: int) -> list[jax.Array]:
        """Sums all arrays by collectives that XLA may combine into one."""
        del replicas
        return list(jax.lax.psum(values, AXIS))

    def same_sums(self, values: list[jax.Array], replicas: int) -> list[jax.Array]:
        """Returns the sums, which need no mark: JAX's own all-reduce is known."""
        return self.sum_in_program(values, replicas)


@final
class ChosenBySize(CrossDeviceOps):
    """The default of strategies: the algorithm that was measured to be the fastest.

    From Python that is a sum on one device on CPU devices, and elsewhere up to 64 KiB.
    """

    algorithm = "by_size"

    def chosen(self, mesh: ReplicaMesh, row_bytes: int) -> CrossDeviceOps:
        """Returns the algorithm for a value of this size."""
        if mesh.shared:
            return _ALL_REDUCE
        on_cpu = mesh.devices[0].platform == "cpu"
        return _TO_ONE if on_cpu or row_bytes <= _SMALL_BYTES else _ALL_REDUCE

    def sum_rows(self, stacked: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Returns the sum of the rows by the algorithm for this size."""
        return self.chosen(mesh, stacked.nbytes // mesh.replicas).sum_rows(stacked, mesh)

    def sum_nest(self, several: list[jax.Array], mesh: ReplicaMesh) -> list[jax.Array]:
        """Returns the sums by the algorithm for each size."""
        chosen = [self.chosen(mesh, stacked.nbytes // mesh.replicas) for stacked in several]
        sums = {
            ops: iter(
                ops.sum_nest([s for s, o in zip(several, chosen, strict=True) if o is ops], mesh)
            )
            for ops in dict.fromkeys(chosen)
        }
        return [next(sums[ops]) for ops in chosen]

    def sum_in_program(self, values: list[jax.Array], replicas: int) -> list[jax.Array]:
        """Sums by the platform's all-reduce."""
        return _ALL_REDUCE.sum_in_program(values, replicas)

    def same_sums(self, values: list[jax.Array], replicas: int) -> list[jax.Array]:
        """Returns the sums, as the platform's all-reduce does."""
        return _ALL_REDUCE.same_sums(values, replicas)


def _checked_packs(num_packs: int) -> int:
    if not is_count(num_packs, _MOST_PACKS):
        raise OptionError(
            f"num_packs must be a whole number from 0 to {_MOST_PACKS}, got {shown(num_packs)}. "
            "Use 1 to send each value whole."
        )
    return num_packs


_TO_ONE: Final = ReductionToOneDevice()
_ALL_REDUCE: Final = NcclAllReduce()


@jax.jit
def add_rows(stacked: jax.Array) -> jax.Array:
    """Returns the sum over the first axis, in the same dtype."""
    return jnp.sum(stacked, axis=0, dtype=stacked.dtype)


@jax.jit
def _add_rows_of_each(several: list[jax.Array]) -> list[jax.Array]:
    return [add_rows(stacked) for stacked in several]


def _is_small(stacked: jax.Array, mesh: ReplicaMesh) -> bool:
    return stacked.nbytes // mesh.replicas <= _SMALL_BYTES


@jax.jit
def _add_up(first: jax.Array, *others: jax.Array) -> jax.Array:
    return functools.reduce(jnp.add, others, first)[0]


def _rows_to_move(stacked: jax.Array, home: jax.Device) -> list[Any]:
    """Returns the rows; computed ones of CPU devices as views, which move without a copy."""
    rows = [row for _, row in pieces(stacked)]
    if home.platform == "cpu" and is_ready(stacked):
        return [np.asarray(row) for row in rows]
    return rows


def _rounds(replicas: int) -> list[list[tuple[int, int]]]:
    """Returns the pairs `(source, target)` of each round of a tree whose root is replica 0."""
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
        receives = functools.reduce(jnp.logical_or, [rank == target for _, target in back])
        value = jnp.where(receives, received, value)
    return value


def as_cross_device_ops(ops: Any) -> CrossDeviceOps:
    """Returns an algorithm; for None, the default one."""
    if ops is None:
        return ChosenBySize()
    if not isinstance(ops, CrossDeviceOps):
        raise OptionError(
            f"cross_device_ops must be a CrossDeviceOps such as NcclAllReduce(), got {shown(ops)}. "
            "Leave it out for the default."
        )
    return ops
