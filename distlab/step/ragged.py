"""One program for replicas whose arrays have different shapes.

A partial batch gives the replicas different shapes, for which one program over
the mesh is not possible as it stands. The function is traced for each distinct
shape and cut at its collectives. Between two collectives every device switches
to the code of its own shape; the collectives are common to all. What a piece
hands to the next one, in shapes of its own, travels packed in flat buffers.
No example is dropped, and none is made up: rows are padded in memory only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from distlab.devices import jax_internals, jaxprs
from distlab.devices.mesh import AXIS
from distlab.errors import StructureError, ValueShapeError
from distlab.step.segments import Segments, bind
from distlab.values.distributed import Shape

Buffers = dict[str, jax.Array]
"""Flat buffers by element type: what pieces hand on."""


class Feed(NamedTuple):
    """Which of the step's inputs a group reads, and how much of its row.

    Attributes:
      position: which one.
      shape: the part at the start of the row that is the group's.
    """

    position: int
    shape: Shape


class Group(NamedTuple):
    """Replicas that get the same shapes.

    Attributes:
      segments: what they compute, cut at the collectives.
      feeds: what each of their inputs is; None for one that they do not use.
    """

    segments: Segments
    feeds: list[Feed | None]


def require_same_collectives(groups: list[Group]) -> None:
    """Checks that the groups meet in the same collectives with the same shapes.

    Raises:
      StructureError: they call different collectives.
      ValueShapeError: they give a collective arrays of different shapes.
    """
    names = [[jaxprs.name(e) for e in group.segments.collectives] for group in groups]
    if any(other != names[0] for other in names):
        raise StructureError(
            "All replicas must take part in the same collectives in the same order, but this "
            f"step's replicas, which get different shapes, call {' and '.join(map(str, names))}. "
            "Call them on every replica, whatever its shapes."
        )
    for equations in zip(*(group.segments.collectives for group in groups), strict=True):
        operands = [[str(atom.aval.str_short()) for atom in e.invars] for e in equations]
        if any(other != operands[0] for other in operands):
            raise ValueShapeError(
                f"{jaxprs.name(equations[0])} needs the same shapes on all replicas, got "
                f"{' and '.join(str(o) for o in operands)}. Reduce over the batch first, or use "
                "strategy.gather for values whose sizes differ."
            )


def evaluate(
    groups: list[Group], member: Sequence[int], inputs: list[jax.Array], out_shapes: list[Shape]
) -> list[jax.Array]:
    """Computes a ragged step on one replica, inside the program over the mesh.

    Args:
      groups: the distinct shapes.
      member: the group of each replica.
      inputs: this replica's variables and arguments, as large as the largest
        group's.
      out_shapes: for each output the shape to pad it to.

    Returns:
      The outputs of this replica's group, padded.
    """
    mine = jnp.asarray(np.asarray(member, np.int32))[jax.lax.axis_index(AXIS)]
    results: list[list[jax.Array]] = []
    buffers: Buffers = {}
    last = len(groups[0].segments.collectives)
    for number in range(last + 1):
        sizes = _buffer_sizes(groups, number)
        branches = [
            _branch(group, number, sizes, out_shapes if number == last else None)
            for group in groups
        ]
        outputs, buffers = jax.lax.switch(mine, branches, inputs, results, buffers)
        if number == last:
            return list(outputs)
        results.append(bind(groups[0].segments.collectives[number], outputs))
    raise AssertionError("unreachable")


def _branch(
    group: Group, number: int, sizes: dict[str, int], out_shapes: list[Shape] | None
) -> Callable[..., tuple[list[jax.Array], Buffers]]:
    """The code of one group between two collectives."""
    segments = group.segments
    jaxpr = segments.jaxpr.jaxpr
    last = out_shapes is not None
    outvars = jaxpr.outvars if last else segments.collectives[number].invars

    def branch(
        inputs: list[jax.Array], results: list[list[jax.Array]], buffers: Buffers
    ) -> tuple[list[jax.Array], Buffers]:
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, segments.jaxpr.consts, strict=True))
        for var, feed in zip(jaxpr.invars, group.feeds, strict=True):
            if feed is not None:
                values[var] = inputs[feed.position][tuple(slice(n) for n in feed.shape)]
        for equation, outputs in zip(segments.collectives, results, strict=False):
            values.update(zip(equation.outvars, outputs, strict=True))
        values.update(_unpack(_handed_on(group, number - 1), buffers))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, core.Literal) else values[atom]

        for equation in segments.pieces[number]:
            outputs = bind(equation, [read(atom) for atom in equation.invars])
            values.update(zip(equation.outvars, outputs, strict=True))
        out = [_strong(read(atom), atom.aval.dtype) for atom in outvars]
        if out_shapes is not None:
            return [_padded(a, to) for a, to in zip(out, out_shapes, strict=True)], {}
        return out, _pack([(v, values[v]) for v in _handed_on(group, number)], sizes)

    return branch


def _handed_on(group: Group, number: int) -> list[Any]:
    """Variables that piece `number` or an earlier one makes and a later one needs, in order."""
    if number < 0:
        return []
    segments = group.segments
    made = dict.fromkeys(
        v for piece in segments.pieces[: number + 1] for equation in piece for v in equation.outvars
    )
    needed = {
        atom
        for piece in segments.pieces[number + 1 :]
        for equation in piece
        for atom in equation.invars
        if not isinstance(atom, core.Literal)
    }
    for equation in segments.collectives[number + 1 :]:
        needed.update(a for a in equation.invars if not isinstance(a, core.Literal))
    needed.update(a for a in segments.jaxpr.jaxpr.outvars if not isinstance(a, core.Literal))
    return [var for var in made if var in needed]


def _buffer_sizes(groups: list[Group], number: int) -> dict[str, int]:
    """How large each buffer must be for the group that hands on most."""
    sizes: dict[str, int] = {}
    if number == len(groups[0].segments.collectives):
        return sizes
    for group in groups:
        own: dict[str, int] = {}
        for var in _handed_on(group, number):
            dtype, size = _stored(var.aval)
            own[dtype] = own.get(dtype, 0) + size
        for dtype, size in own.items():
            sizes[dtype] = max(size, sizes.get(dtype, 0))
    return sizes


def _stored(aval: Any) -> tuple[str, int]:
    """Element type and number of elements that a value takes in a buffer."""
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
        dtype, size = _stored(var.aval)
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


def _strong(value: Any, dtype: Any) -> jax.Array:
    """Branches of a switch must agree: no weak types."""
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return value
    return jax.lax.convert_element_type(value, dtype)
