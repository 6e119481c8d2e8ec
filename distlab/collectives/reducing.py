"""Reduction of per-replica values in cross-replica context."""

from __future__ import annotations

import functools
import itertools
import time
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from distlab import events, user_code
from distlab.collectives.host import CollectiveHost
from distlab.collectives.rows import copies_of, on_first_device
from distlab.collectives.traced import TracedPerReplica
from distlab.context import scopes
from distlab.context.host import Host
from distlab.devices import in_flight, jax_internals
from distlab.devices.pieces import first_piece
from distlab.errors import ValueShapeError
from distlab.events import sink
from distlab.processes.boundary import verb
from distlab.text.shown import shown
from distlab.values.checks import (
    as_array,
    require_alive,
    require_components,
    require_value,
    summable,
    way_to_components,
)
from distlab.values.distributed import (
    DistributedValues,
    Mirrored,
    PerReplica,
    Shape,
    replica_shapes,
    stack,
)
from distlab.values.indexed_slices import IndexedSlices
from distlab.values.padding import place_of
from distlab.values.reduce_op import ReduceOp
from distlab.values.sharded import as_per_replica
from distlab.variables.variable import Variable

Axes = tuple[int, ...]

calls = itertools.count()
"""The numbers of calls that combine values, which events carry."""

_array_numbers = itertools.count()
_numbered: dict[int, tuple[weakref.ref[Any], int]] = {}
"""Numbers by which events refer to arrays without keeping them alive, by `id`."""


@verb
def reduce(strategy: CollectiveHost, reduce_op: ReduceOp | str, value: Any, axis: Any) -> Any:
    """Reduces the components of per-replica values. See `Strategy.reduce`."""
    started = time.monotonic_ns()
    scopes.require_cross_replica("reduce", strategy)
    in_flight.require_not_forked()
    op = ReduceOp.of(reduce_op)
    require_value(value, "reduce")
    axes = None if axis is None else tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    leaves, structure = jax.tree.flatten(
        value, is_leaf=lambda v: isinstance(v, DistributedValues | Variable | IndexedSlices)
    )
    replicas = strategy.num_replicas_in_sync
    common = op is ReduceOp.MEAN and axes is None
    leaves = [_as_per_replica(leaf, strategy, common=common) for leaf in leaves]
    for leaf in leaves:
        if isinstance(leaf, PerReplica):
            require_alive(leaf.stacked, "The value to reduce")
            require_components(leaf, "The value to reduce", replicas)
    per_replica = [summable_components(leaf, op) for leaf in leaves if isinstance(leaf, PerReplica)]
    reduced = iter(reduce_per_replica(strategy, op, per_replica, axes, started))
    return jax.tree.unflatten(
        structure,
        [
            next(reduced)
            if isinstance(leaf, PerReplica)
            else _reduce_slices(strategy, op, leaf, axes)
            if isinstance(leaf, IndexedSlices)
            else _reduce_other(strategy, op, leaf, axes, started)
            for leaf in leaves
        ],
    )


def reduce_per_replica(
    strategy: CollectiveHost,
    op: ReduceOp,
    values: list[PerReplica],
    axes: Axes | None,
    started: int,
) -> list[jax.Array]:
    """Reduces the components of per-replica values, all values at once."""
    if not values:
        return []
    mesh, ops = strategy.mesh, strategy.cross_device_ops
    all_shapes = [replica_shapes(value) for value in values]
    all_axes = [_axes_within(axes, shapes) for shapes in all_shapes]
    stacked = [value.stacked for value in values]
    if axes is not None:
        summed = tuple((local, value.shapes) for local, value in zip(all_axes, values, strict=True))
        stacked = _sum_each_over(stacked, summed)
    in_flight.require_sound()
    with in_flight.dispatching:
        results = ops.sum_nest(stacked, mesh)
        if not isinstance(results[-1], jax.core.Tracer):
            in_flight.admit(results[-1])
    if op is ReduceOp.MEAN:
        counts = [
            mesh.replicas if local is None else _elements(shapes, local)
            for local, shapes in zip(all_axes, all_shapes, strict=True)
        ]
        with jax_internals.placing():
            results = _divide_each(results, counts)
    row_bytes = [array.nbytes // mesh.replicas for array in stacked]
    algorithms = [ops.chosen(mesh, size).algorithm for size in row_bytes]
    reduced = [jax_internals.uncommitted(result) for result in results]
    _report_nest(strategy, op, values, algorithms, started)
    return reduced


def _report_nest(
    strategy: Host, op: ReduceOp, values: list[PerReplica], algorithms: list[str], started: int
) -> None:
    """Emits the reduction of each value; a value has the share of the time that it has of bytes."""
    call, source = next(calls), user_code.calling_line() if sink.recorder().enabled else ""
    everything = max(1, sum(value.stacked.nbytes for value in values))
    for value, algorithm in zip(values, algorithms, strict=True):
        report(
            strategy,
            "reduce",
            op.value,
            algorithm,
            stacked=value.stacked,
            started=started,
            call=call,
            source=source,
            of_time=value.stacked.nbytes / everything,
        )


def summable_components(value: PerReplica, op: ReduceOp) -> PerReplica:
    """Returns a per-replica value in a dtype that holds the sum of its components."""
    stacked = summable(value.stacked, op)
    return value if stacked is value.stacked else PerReplica(stacked, value.shapes)


def _as_per_replica(value: Any, strategy: Host, *, common: bool) -> Any:
    """Returns variables whose copies may differ, and divided arrays, as `PerReplica`."""
    replicas = strategy.num_replicas_in_sync
    if isinstance(value, Variable):
        layout = value.storage.layout
        parted = value.storage.apart and not layout.one_copy and not common
        if layout.copies_differ or parted:
            return copies_of(value, strategy.mesh)
    if isinstance(value, Mirrored):
        require_alive(value.array, "The value to reduce")
    if replicas > 1:
        return as_per_replica(value, strategy.mesh, "The value to reduce")
    return value


def _reduce_other(
    strategy: CollectiveHost, op: ReduceOp, value: Any, axes: Axes | None, started: int
) -> jax.Array:
    if isinstance(value, TracedPerReplica):
        return _reduce_traced(op, value, axes)
    if strategy.mesh.shared and not isinstance(value, jax.core.Tracer):
        return _reduce_over_workers(strategy, op, value, axes, started)
    return _reduce_plain(op, value, axes, strategy.num_replicas_in_sync)


def _reduce_over_workers(
    strategy: CollectiveHost, op: ReduceOp, value: Any, axes: Axes | None, started: int
) -> jax.Array:
    """Reduces a value of which each worker has its own; a mirrored one counts for each replica."""
    mesh = strategy.mesh
    for_each_replica = axes is not None or isinstance(value, Mirrored | Variable)
    if isinstance(value, Mirrored):
        value = first_piece(value.array)
    array = summable(as_array(value, "reduce"), op)
    if for_each_replica:
        stacked = stack([array] * len(mesh.local_replicas), mesh)
        return reduce_per_replica(strategy, op, [stacked], axes, started)[0]
    zeros = [jnp.zeros_like(array)] * (len(mesh.local_replicas) - 1)
    stacked = stack([array, *zeros], mesh)
    (total,) = reduce_per_replica(strategy, ReduceOp.SUM, [stacked], None, started)
    return _divide(total, len(mesh.by_process)) if op is ReduceOp.MEAN else total


def _axes_within(axes: Axes | None, shapes: tuple[Shape, ...]) -> Axes | None:
    if axes is not None:
        return _checked_axes(axes, shapes)
    if len(set(shapes)) > 1:
        raise ValueShapeError(
            f"reduce with axis=None combines the replicas' values element by element, but their "
            f"shapes differ: {_listed(shapes)}. Use axis=0 to reduce over the batch as well."
        )
    return None


def _reduce_slices(
    strategy: CollectiveHost, op: ReduceOp, slices: IndexedSlices, axes: Axes | None
) -> IndexedSlices:
    """Returns the rows of all replicas together, which is their sum, as in TensorFlow."""
    parts = (slices.values, slices.indices)
    if axes is not None or not all(isinstance(part, DistributedValues) for part in parts):
        raise ValueShapeError(
            "reduce of IndexedSlices needs axis=None and a component for each replica, got "
            f"axis={axes} and {shown(slices, 100)}. Return the slices from the function that run "
            "runs."
        )
    values, indices = (_joined(strategy, part) for part in parts)
    if op is ReduceOp.MEAN:
        values = _divide(values, strategy.num_replicas_in_sync)
    return IndexedSlices(values, indices, slices.dense_shape)


def _joined(strategy: CollectiveHost, value: DistributedValues) -> jax.Array:
    """Returns the replicas' rows, one after another."""
    if isinstance(value, TracedPerReplica):
        return value.collectives.all_gather([value.local], 0)[0]
    parts = on_first_device(value, strategy.mesh)
    joined: jax.Array = jax_internals.uncommitted(jnp.concatenate(parts))
    return joined


def _reduce_traced(op: ReduceOp, value: TracedPerReplica, axes: Axes | None) -> jax.Array:
    """Reduces a value in a `merge_call` that is being traced."""
    local, count = value.local, 1
    local = summable(local, op)
    if axes is not None:
        front = _checked_axes(axes, (local.shape,))
        count = int(np.prod([local.shape[axis] for axis in front]))
        local = jnp.sum(local, axis=front, dtype=local.dtype)
    if op is ReduceOp.SUM or axes is None:
        (result,) = value.collectives.all_reduce(op, [local])
        return result
    total, counted = value.collectives.all_reduce(ReduceOp.SUM, [local, jnp.asarray(count)])
    return _divide(total, counted)


def _reduce_plain(op: ReduceOp, value: Any, axes: Axes | None, replicas: int) -> jax.Array:
    """Reduces a value that is the same on all replicas."""
    copies = isinstance(value, Mirrored) or (
        isinstance(value, Variable) and not value.storage.layout.one_copy
    )
    if isinstance(value, Mirrored):
        value = first_piece(value.array)
    array = as_array(value, "reduce")
    if op is ReduceOp.SUM and replicas > 1 and not copies and axes is None:
        raise ValueShapeError(
            f"reduce(SUM) needs a per-replica value, got a plain {type(value).__name__}: it is the "
            f"same on all {replicas} replicas, so its sum is ambiguous. "
            f"{way_to_components(value)}, or use MEAN."
        )
    if axes is not None or op is ReduceOp.SUM:
        array = summable(array, op)
    if axes is not None:
        local_axes = _checked_axes(axes, (array.shape,))
        count = _elements((array.shape,), local_axes)
        array = jnp.sum(array, axis=local_axes, dtype=array.dtype)
        array = _divide(array, count) if op is ReduceOp.MEAN else array
    return array * replicas if op is ReduceOp.SUM and replicas > 1 else array


@jax.jit
def _divide_each(totals: list[jax.Array], counts: list[int]) -> list[jax.Array]:
    return [_divide(total, count) for total, count in zip(totals, counts, strict=True)]


def _divide(total: jax.Array, count: Any) -> jax.Array:
    with jax_internals.placing():
        mean = total / count
    return mean.astype(total.dtype) if jnp.issubdtype(total.dtype, jnp.inexact) else mean


@functools.partial(jax.jit, static_argnums=1)
def _sum_each_over(
    several: list[jax.Array], summed: tuple[tuple[Axes, tuple[Shape, ...] | None], ...]
) -> list[jax.Array]:
    return [
        _sum_over(stacked, axes, shapes)
        for stacked, (axes, shapes) in zip(several, summed, strict=True)
    ]


def _sum_over(stacked: jax.Array, axes: Axes, shapes: tuple[Shape, ...] | None) -> jax.Array:
    """Sums each row over the axes of its component, without the padding."""
    if shapes is not None:
        stacked = jnp.where(_mask(stacked.shape, shapes), stacked, jnp.zeros((), stacked.dtype))
    return jnp.sum(stacked, axis=tuple(a + 1 for a in axes), dtype=stacked.dtype)


def _mask(stacked: Shape, shapes: tuple[Shape, ...]) -> np.ndarray:
    """Returns an array that is true where a row holds a component, and false for padding."""
    mask = np.zeros(stacked, dtype=bool)
    for row, shape in zip(mask, shapes, strict=True):
        row[place_of(shape, row.ndim)] = True
    return mask


def _checked_axes(axes: Axes, shapes: tuple[Shape, ...]) -> Axes:
    """Returns axes counted from the front."""
    rank = min(map(len, shapes))
    for axis in axes:
        if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
            raise ValueShapeError(
                f"axis must be None, a whole number or a tuple of them, got {shown(axis)}. Use "
                "axis=0 to reduce over the batch."
            )
        if not -rank <= axis < rank:
            raise ValueShapeError(
                f"axis {shown(axis)} is out of range for components of {rank} dimension(s), "
                f"{_listed(shapes)}. Use axis=None to combine them element by element."
            )
    front = tuple(int(axis) % rank for axis in axes)
    kept = {tuple(n for a, n in enumerate(shape) if a not in front) for shape in shapes}
    if len(kept) > 1:
        raise ValueShapeError(
            f"After the reduction of axis {axes} the replicas' values must have one shape, but the "
            f"components are {_listed(shapes)}. Reduce the axis in which they differ."
        )
    return front


def _elements(shapes: tuple[Shape, ...], axes: Axes) -> int:
    """Returns the number of elements in each mean."""
    return sum(int(np.prod([shape[axis] for axis in axes])) for shape in shapes)


def _listed(shapes: tuple[Shape, ...]) -> str:
    return ", ".join(str(list(shape)) for shape in shapes[:8]) + (", ..." * (len(shapes) > 8))


def report(
    strategy: Host,
    verb: str,
    op: str,
    algorithm: str,
    *,
    stacked: Any,
    started: int,
    call: int,
    source: str | None = None,
    of_time: float = 1.0,
) -> None:
    """Emits that values of the replicas were combined from Python."""
    recorder = sink.recorder()
    if not recorder.enabled or isinstance(stacked, jax.core.Tracer):
        return
    recorder.emit(
        events.Reduction(
            time_ns=started,
            strategy=strategy.number,
            verb=verb,
            op=op,
            algorithm=algorithm,
            bytes=stacked.nbytes // strategy.num_replicas_in_sync,
            dtype=str(stacked.dtype),
            participants=strategy.num_replicas_in_sync,
            array=_number_of(stacked),
            call=call,
            duration_ns=int(of_time * (time.monotonic_ns() - started)),
            source=user_code.calling_line() if source is None else source,
        )
    )


def _number_of(array: Any) -> int:
    """Returns an array's number in this process, which stays the same while the array lives."""
    key = id(array)
    known = _numbered.get(key)
    if known is not None and known[0]() is array:
        return known[1]
    number = next(_array_numbers)

    def forget(dead: weakref.ref[Any]) -> None:
        if _numbered.get(key, (None,))[0] is dead:
            del _numbered[key]

    _numbered[key] = (weakref.ref(array, forget), number)
    return number
