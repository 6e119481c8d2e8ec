"""Combining per-replica values from cross-replica context."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from distlab import _context, _in_flight, _seam, events
from distlab._mesh import ReplicaMesh
from distlab._reduce_op import ReduceOp
from distlab._values import DistributedValues, Mirrored, PerReplica, Shape, pieces, replica_shapes
from distlab._variable import Variable
from distlab.errors import ValueShapeError

if TYPE_CHECKING:
    from distlab.strategies.abstract import Strategy

_SMALL_BYTES: Final = 1 << 20
Axes = tuple[int, ...]


def reduce(strategy: Strategy, reduce_op: ReduceOp | str, value: Any, axis: Any) -> Any:
    """Combines the components of per-replica values. See `Strategy.reduce`."""
    _context.require_cross_replica("reduce", strategy)
    op = ReduceOp.of(reduce_op)
    axes = None if axis is None else tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    return jax.tree.map(
        lambda leaf: _reduce_leaf(strategy, op, leaf, axes),
        value,
        is_leaf=lambda v: isinstance(v, DistributedValues | Variable),
    )


def _reduce_leaf(strategy: Strategy, op: ReduceOp, value: Any, axes: Axes | None) -> jax.Array:
    started = time.monotonic_ns()
    replicas = strategy.num_replicas_in_sync
    if isinstance(value, Variable) and value.storage.layout == "per_replica":
        value = PerReplica(value.storage.array)
    if not isinstance(value, PerReplica):
        return _reduce_plain(op, value, axes, replicas)
    shapes = replica_shapes(value)
    local_axes = None if axes is None else _checked_axes(axes, shapes)
    if local_axes is None and len(set(shapes)) > 1:
        raise ValueShapeError(
            f"reduce with axis=None combines the replicas' values element by element, and their "
            f"shapes differ: {_listed(shapes)}. Give axis=0 to reduce over the batch as well."
        )
    partial = value.stacked
    if local_axes is not None:
        with _in_flight.dispatching:
            partial = _sum_over(partial, local_axes, value.shapes)
    result = _to_one_device(partial, strategy.mesh)
    if op is ReduceOp.MEAN:
        count = replicas if local_axes is None else _count(shapes, local_axes)
        result = _divide(result, count)
    _report(strategy, op, value.stacked, started)
    return result


def _reduce_plain(op: ReduceOp, value: Any, axes: Axes | None, replicas: int) -> jax.Array:
    """Reduces a value that is the same on all replicas."""
    copies = isinstance(value, Mirrored | Variable)
    if isinstance(value, Mirrored):
        value = pieces(value.array)[0]
    array = jnp.asarray(value)
    if op is ReduceOp.SUM and replicas > 1 and not copies:
        raise ValueShapeError(
            f"reduce(SUM) needs a per-replica value, got a plain {type(value).__name__}: it is the "
            f"same on all {replicas} replicas, so its sum is not meant. Give what run returned, or "
            "use MEAN."
        )
    if axes is not None:
        local_axes = _checked_axes(axes, (array.shape,))
        combine = jnp.sum if op is ReduceOp.SUM else jnp.mean
        array = combine(array, axis=local_axes).astype(array.dtype)
    return array * replicas if op is ReduceOp.SUM and copies else array


def _to_one_device(stacked: jax.Array, mesh: ReplicaMesh) -> jax.Array:
    """Brings the rows to the first replica's device and adds them up there."""
    if isinstance(stacked, jax.core.Tracer):
        return _sum_rows(stacked)
    if stacked.nbytes // max(1, mesh.size) <= _SMALL_BYTES or mesh.size == 1:
        return _sum_rows(jax.device_put(stacked, mesh.first))
    # Large rows: views of the pieces, without building the stacked array on one device.
    return _add_up(*jax.device_put(pieces(stacked), mesh.devices[0]))


@jax.jit
def _sum_rows(stacked: jax.Array) -> jax.Array:
    return jnp.sum(stacked, axis=0, dtype=stacked.dtype)


@jax.jit
def _add_up(first: jax.Array, *others: jax.Array) -> jax.Array:
    return functools.reduce(jnp.add, others, first)[0]


@jax.jit
def _divide(total: jax.Array, count: int) -> jax.Array:
    mean = total / count
    return mean.astype(total.dtype) if jnp.issubdtype(total.dtype, jnp.inexact) else mean


@functools.partial(jax.jit, static_argnums=(1, 2))
def _sum_over(stacked: jax.Array, axes: Axes, shapes: tuple[Shape, ...] | None) -> jax.Array:
    """Sums each row over its own axes, leaving out what is padding."""
    if shapes is not None:
        stacked = jnp.where(_mask(stacked.shape, shapes), stacked, jnp.zeros((), stacked.dtype))
    return jnp.sum(stacked, axis=tuple(a + 1 for a in axes), dtype=stacked.dtype)


def _mask(stacked: Shape, shapes: tuple[Shape, ...]) -> np.ndarray:
    """True where a row holds a component and not padding."""
    mask = np.zeros(stacked, dtype=bool)
    for row, shape in zip(mask, shapes, strict=True):
        row[tuple(slice(n) for n in shape)] = True
    return mask


def _checked_axes(axes: Axes, shapes: tuple[Shape, ...]) -> Axes:
    """Returns axes counted from the front."""
    rank = len(shapes[0])
    for axis in axes:
        if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
            raise ValueShapeError(
                f"axis must be None, a whole number or a tuple of them, got {axis!r}."
            )
        if not -rank <= axis < rank:
            raise ValueShapeError(
                f"axis {axis} is out of range for components of {rank} dimension(s), "
                f"{_listed(shapes)}. Give axis=None to combine the components as they are."
            )
    front = tuple(int(axis) % rank for axis in axes)
    kept = {tuple(n for a, n in enumerate(shape) if a not in front) for shape in shapes}
    if len(kept) > 1:
        raise ValueShapeError(
            f"After reducing axis {axes} the replicas' values must have one shape, but the "
            f"components are {_listed(shapes)}. Reduce the axis in which they differ."
        )
    return front


def _count(shapes: tuple[Shape, ...], axes: Axes) -> int:
    """How many elements go into each mean."""
    return sum(int(np.prod([shape[axis] for axis in axes])) for shape in shapes)


def _listed(shapes: tuple[Shape, ...]) -> str:
    return ", ".join(str(list(shape)) for shape in shapes[:8]) + (", ..." * (len(shapes) > 8))


def _report(strategy: Strategy, op: ReduceOp, stacked: Any, started: int) -> None:
    recorder = _seam.recorder()
    if not recorder.enabled or isinstance(stacked, jax.core.Tracer):
        return
    now = time.monotonic_ns()
    recorder.emit(
        events.Reduction(
            time_ns=started,
            strategy=strategy.number,
            verb="reduce",
            op=op.value,
            algorithm="to_one_device",
            bytes=stacked.nbytes // max(1, strategy.num_replicas_in_sync),
            dtype=str(stacked.dtype),
            participants=strategy.num_replicas_in_sync,
            duration_ns=now - started,
        )
    )
