"""A ragged step as a part of one program: every device switches to the code of its own shapes.

So a step can be a part of a user's own program, under `jit` and `grad`. XLA compiles the
branches of a switch worse than whole programs (on CPU devices, convolutions are several times
slower there), so that `run` by itself dispatches a program for each group of replicas
(`ragged_programs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from distlab.devices import jax_internals
from distlab.devices.key_data import is_key
from distlab.devices.mesh import AXIS
from distlab.step.ragged.stages import Stages, Values
from distlab.values.distributed import Shape
from distlab.values.padding import padded

Buffers: TypeAlias = dict[str, jax.Array]
"""The values that later own stages need: one flat buffer for each dtype."""

_Known: TypeAlias = tuple[list[jax.Array], list[jax.Array], Buffers, jax.Array]
"""The inputs in the largest group's shape, common values, buffers, and the replica's number."""


def evaluate(
    stages: Stages, group_of: Sequence[int], inputs: list[jax.Array], shapes: list[Shape]
) -> list[jax.Array]:
    """Computes a ragged step on one replica, inside a program over the mesh."""
    replica_id = jax.lax.axis_index(AXIS)
    mine = jnp.asarray(np.asarray(group_of, np.int32))[replica_id]
    outputs: dict[int, jax.Array] = {}
    handed: dict[int, jax.Array] = {}
    common: Values = {}
    buffers: Buffers = {}
    groups = range(len(stages.groups))
    for number, own in enumerate(stages.own):
        if any(stages.is_needed(number, group) for group in groups):
            names = list(common)
            branches = [partial(_branch, stages, number, g, shapes, names) for g in groups]
            known: _Known = (inputs, list(common.values()), buffers, replica_id)
            given, buffers = jax.lax.switch(mine, branches, known)
            handed.update(zip(own.handed, given, strict=False))
            outputs.update(zip(own.outputs, given[len(own.handed) :], strict=True))
        if number < len(stages.common):
            values = {**stages.groups[0].values(inputs), **common}
            made = stages.evaluate_common(number, values, handed)
            outputs.update(zip(stages.common[number].outputs, made, strict=True))
            common |= {name: values[name] for name in stages.common[number].results}
    return [outputs[position] for position in range(len(shapes))]


def _branch(  # noqa: PLR0917
    stages: Stages,
    number: int,
    group: int,
    shapes: list[Shape],
    names: list[Any],
    known: _Known,
) -> tuple[list[jax.Array], Buffers]:
    """Computes an own stage of one group; returns what it gives, and the values for later ones.

    `names` are the first group's variables of the common values so far.
    """
    inputs, made, buffers, replica_id = known
    own = stages.own[number]
    common = dict(zip(names, made, strict=True))
    values = stages.groups[group].values(inputs)
    for var, name in stages.common_values[group].items():
        if name in common:
            values[var] = common[name]
    values.update(_unpack(own.live[group], buffers))
    given = stages.evaluate_own(number, group, values, replica_id)
    for at, position in enumerate(own.outputs, start=len(own.handed)):
        given[at] = padded(given[at], shapes[position])
    live = [(var, values[var]) for var in stages.live_after(number, group)]
    return given, _pack(live, _buffer_sizes(stages, number))


def _buffer_sizes(stages: Stages, number: int) -> dict[str, int]:
    """Returns the size of each buffer after a stage, for the group that needs most."""
    sizes: dict[str, int] = {}
    for group in range(len(stages.groups)):
        own: dict[str, int] = {}
        for var in stages.live_after(number, group):
            dtype, size = _packed_as(var.aval)
            own[dtype] = own.get(dtype, 0) + size
        for dtype, size in own.items():
            sizes[dtype] = max(size, sizes.get(dtype, 0))
    return sizes


def _packed_as(aval: Any) -> tuple[str, int]:
    """Returns the dtype and the number of elements of a value in its buffer."""
    if is_key(aval):
        data = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(aval.shape, aval.dtype))
        return str(data.dtype), int(np.prod(data.shape))
    return str(aval.dtype), int(np.prod(aval.shape))


def _pack(values: list[tuple[Any, jax.Array]], sizes: dict[str, int]) -> Buffers:
    # Without the barrier XLA may compute a matrix product once more for each element that it packs.
    arrays = jax.lax.optimization_barrier(
        [jax.random.key_data(value) if is_key(var.aval) else value for var, value in values]
    )
    parts: dict[str, list[jax.Array]] = {dtype: [] for dtype in sizes}
    for array in arrays:
        parts[str(array.dtype)].append(array.ravel())
    return {
        dtype: padded(jnp.concatenate(parts[dtype]) if parts[dtype] else jnp.zeros(0, dtype), (n,))
        for dtype, n in sizes.items()
    }


def _unpack(variables: list[Any], buffers: Buffers) -> Values:
    offsets = dict.fromkeys(buffers, 0)
    values: Values = {}
    for var in variables:
        dtype, size = _packed_as(var.aval)
        flat = buffers[dtype][offsets[dtype] : offsets[dtype] + size]
        offsets[dtype] += size
        if is_key(var.aval):
            keys = flat.reshape(*var.aval.shape, -1)
            values[var] = jax.random.wrap_key_data(
                keys, impl=jax_internals.key_impl(var.aval.dtype)
            )
        else:
            values[var] = flat.reshape(var.aval.shape)
    return values
