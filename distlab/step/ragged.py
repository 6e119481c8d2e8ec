"""One program for replicas whose arrays have different shapes.

A program over the mesh has one shape for all replicas, and a partial batch has
several. So the function is traced for each distinct shape and cut at its
collectives. Between two collectives every device switches to the segment of its
own shape; the collectives are common to all. Values that a later segment needs
are packed in flat buffers. No example is dropped, and none is added: rows are
padded in memory only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from distlab.devices import jax_internals
from distlab.devices.mesh import AXIS
from distlab.errors import StructureError, ValueShapeError
from distlab.step import jaxprs
from distlab.step.segments import SegmentedJaxpr, bind
from distlab.values.distributed import Shape

Buffers = dict[str, jax.Array]
"""The values that later segments need: one flat buffer for each dtype."""


class InputSlice(NamedTuple):
    """The part of one of the step's inputs that a group reads.

    Attributes:
      position: The position of the input.
      shape: The shape of the part, which begins at the input's origin.
    """

    position: int
    shape: Shape


class Group(NamedTuple):
    """Replicas whose arguments have the same shapes.

    Attributes:
      jaxpr: Their jaxpr, cut at its collectives.
      inputs: The source of each of its inputs; None for an unused one.
    """

    jaxpr: SegmentedJaxpr
    inputs: list[InputSlice | None]


class _State(NamedTuple):
    """The values that a segment reads.

    Attributes:
      inputs: The replica's variables and arguments, in the largest group's shape.
      results: The results of each collective before the segment.
      buffers: Values of earlier segments.
    """

    inputs: list[jax.Array]
    results: list[list[jax.Array]]
    buffers: Buffers


def require_same_collectives(groups: list[Group]) -> None:
    """Checks that the groups call the same collectives with the same shapes.

    Raises:
      StructureError: The groups call different collectives.
      ValueShapeError: A collective has operands of different shapes.
    """
    names = [[jaxprs.name(e) for e in group.jaxpr.collectives] for group in groups]
    if any(other != names[0] for other in names):
        raise StructureError(
            "All replicas must call the same collectives in the same order, but this step's "
            f"replicas, which have different shapes, call {' and '.join(map(str, names))}. "
            "Call them on every replica, whatever its shapes."
        )
    for equations in zip(*(group.jaxpr.collectives for group in groups), strict=True):
        operands = [[str(atom.aval.str_short()) for atom in e.invars] for e in equations]
        if any(other != operands[0] for other in operands):
            raise ValueShapeError(
                f"{jaxprs.name(equations[0])} needs the same shapes on all replicas, got "
                f"{' and '.join(str(o) for o in operands)}. Reduce over the batch first, or use "
                "strategy.gather for values whose sizes differ."
            )


def evaluate(
    groups: list[Group], group_of: Sequence[int], inputs: list[jax.Array], out_shapes: list[Shape]
) -> list[jax.Array]:
    """Computes a ragged step on one replica, inside the program over the mesh.

    Args:
      groups: The groups of replicas.
      group_of: The group of each replica.
      inputs: This replica's variables and arguments, in the largest group's shape.
      out_shapes: The shape to which each output is padded.

    Returns:
      The outputs of this replica's group, padded.
    """
    mine = jnp.asarray(np.asarray(group_of, np.int32))[jax.lax.axis_index(AXIS)]
    collectives = groups[0].jaxpr.collectives
    state = _State(inputs, [], {})
    for number, collective in enumerate(collectives):
        sizes = _buffer_sizes(groups, number)
        branches = [partial(_to_collective, group, number, sizes) for group in groups]
        operands, buffers = jax.lax.switch(mine, branches, state)
        state = _State(inputs, [*state.results, bind(collective, operands)], buffers)
    last = [partial(_to_end, group, out_shapes) for group in groups]
    outputs: list[jax.Array] = jax.lax.switch(mine, last, state)
    return outputs


def _to_collective(
    group: Group, number: int, sizes: dict[str, int], state: _State
) -> tuple[list[jax.Array], Buffers]:
    """Computes a segment; returns its collective's operands and the values for later segments."""
    values = _evaluate(group, number, state)
    operands = _read(group.jaxpr.collectives[number].invars, values)
    return operands, _pack([(var, values[var]) for var in _live_after(group, number)], sizes)


def _to_end(group: Group, out_shapes: list[Shape], state: _State) -> list[jax.Array]:
    """Computes the last segment; returns the padded outputs."""
    values = _evaluate(group, len(group.jaxpr.collectives), state)
    outputs = _read(group.jaxpr.whole.jaxpr.outvars, values)
    return [_padded(output, shape) for output, shape in zip(outputs, out_shapes, strict=True)]


def _evaluate(group: Group, number: int, state: _State) -> dict[Any, Any]:
    """Computes a segment; returns the values of its variables and of those before it."""
    whole, segments, collectives = group.jaxpr
    values: dict[Any, Any] = dict(zip(whole.jaxpr.constvars, whole.consts, strict=True))
    for var, source in zip(whole.jaxpr.invars, group.inputs, strict=True):
        if source is not None:
            values[var] = state.inputs[source.position][tuple(slice(n) for n in source.shape)]
    for equation, outputs in zip(collectives, state.results, strict=False):
        values.update(zip(equation.outvars, outputs, strict=True))
    values.update(_unpack(_live_after(group, number - 1), state.buffers))
    for equation in segments[number]:
        outputs = bind(equation, [_value(atom, values) for atom in equation.invars])
        values.update(zip(equation.outvars, outputs, strict=True))
    return values


def _value(atom: Any, values: dict[Any, Any]) -> Any:
    return atom.val if isinstance(atom, core.Literal) else values[atom]


def _read(atoms: Sequence[Any], values: dict[Any, Any]) -> list[jax.Array]:
    return [_strong(_value(atom, values), atom.aval.dtype) for atom in atoms]


def _strong(value: Any, dtype: Any) -> jax.Array:
    """Returns a value without a weak type: the branches of a switch must have equal types."""
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return value
    return jax.lax.convert_element_type(value, dtype)


def _live_after(group: Group, number: int) -> list[Any]:
    """Returns the variables that segments up to `number` define and later ones use, in order."""
    whole, segments, collectives = group.jaxpr
    earlier = chain(*segments[: number + 1])
    later = chain(*segments[number + 1 :], collectives[number + 1 :])
    defined = dict.fromkeys(chain(*(equation.outvars for equation in earlier)))
    atoms = chain(*(equation.invars for equation in later), whole.jaxpr.outvars)
    used = {atom for atom in atoms if not isinstance(atom, core.Literal)}
    return [var for var in defined if var in used]


def _buffer_sizes(groups: list[Group], number: int) -> dict[str, int]:
    """Returns the size of each buffer, for the group that needs most."""
    sizes: dict[str, int] = {}
    for group in groups:
        own: dict[str, int] = {}
        for var in _live_after(group, number):
            dtype, size = _packed_as(var.aval)
            own[dtype] = own.get(dtype, 0) + size
        for dtype, size in own.items():
            sizes[dtype] = max(size, sizes.get(dtype, 0))
    return sizes


def _packed_as(aval: Any) -> tuple[str, int]:
    """Returns the dtype and the number of elements of a value in its buffer."""
    if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        data = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(aval.shape, aval.dtype))
        return str(data.dtype), int(np.prod(data.shape))
    return str(aval.dtype), int(np.prod(aval.shape))


def _pack(values: list[tuple[Any, jax.Array]], sizes: dict[str, int]) -> Buffers:
    parts: dict[str, list[jax.Array]] = {dtype: [] for dtype in sizes}
    for var, value in values:
        key = jnp.issubdtype(var.aval.dtype, jax.dtypes.prng_key)
        plain = jax.random.key_data(value) if key else value
        parts[str(plain.dtype)].append(plain.ravel())
    return {
        dtype: _padded(jnp.concatenate(parts[dtype]) if parts[dtype] else jnp.zeros(0, dtype), (n,))
        for dtype, n in sizes.items()
    }


def _unpack(variables: list[Any], buffers: Buffers) -> dict[Any, jax.Array]:
    offsets = dict.fromkeys(buffers, 0)
    values = {}
    for var in variables:
        dtype, size = _packed_as(var.aval)
        flat = buffers[dtype][offsets[dtype] : offsets[dtype] + size]
        offsets[dtype] += size
        if jnp.issubdtype(var.aval.dtype, jax.dtypes.prng_key):
            keys = flat.reshape(*var.aval.shape, -1)
            values[var] = jax.random.wrap_key_data(
                keys, impl=jax_internals.key_impl(var.aval.dtype)
            )
        else:
            values[var] = flat.reshape(var.aval.shape)
    return values


def _padded(array: jax.Array, shape: Shape) -> jax.Array:
    if array.shape == tuple(shape):
        return array
    return jnp.pad(array, [(0, to - n) for n, to in zip(array.shape, shape, strict=True)])
