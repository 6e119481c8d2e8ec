"""A jaxpr cut at its collectives, so that replicas can compute different shapes between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import jax
from jax.extend import core

from distlab.devices import jaxprs
from distlab.devices.mesh import AXIS
from distlab.errors import StructureError

_LONGEST_UNROLLED_SCAN: Final = 256


class Segments(NamedTuple):
    """A flat jaxpr between its collectives.

    Attributes:
      jaxpr: the whole; its equations hold every collective at top level.
      pieces: the equations before the first collective, between, and after.
      collectives: the collectives, one fewer than `pieces`.
    """

    jaxpr: core.ClosedJaxpr
    pieces: list[list[Any]]
    collectives: list[Any]


def cut(closed: core.ClosedJaxpr, replicas: int) -> Segments:
    """Cuts a replica function's jaxpr at its collectives.

    Raises:
      StructureError: a collective stands inside a loop of unknown length or a
        branch, where replicas of different shapes can't meet.
    """
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in closed.jaxpr.invars]

    def flattened(*inputs: Any) -> list[Any]:
        return _evaluate(closed.jaxpr, closed.consts, inputs)

    flat = jax.make_jaxpr(flattened, axis_env=[(AXIS, replicas)])(*shapes)
    pieces: list[list[Any]] = [[]]
    collectives = []
    for equation in flat.jaxpr.eqns:
        if jaxprs.is_collective(equation):
            collectives.append(equation)
            pieces.append([])
        else:
            pieces[-1].append(equation)
    return Segments(flat, pieces, collectives)


def bind(equation: Any, inputs: Sequence[Any]) -> list[Any]:
    """Executes (or traces) one equation."""
    parameters = equation.primitive.get_bind_params(equation.params)
    with equation.ctx.manager:
        outputs = equation.primitive.bind(*inputs, **parameters)
    return list(outputs) if equation.primitive.multiple_results else [outputs]


def _evaluate(jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Executes a jaxpr, going into every call that holds a collective."""
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        operands = [read(atom) for atom in equation.invars]
        inner = any(jaxprs.collective_in(j) for j in jaxprs.inner_jaxprs(equation))
        outputs = _enter(equation, operands) if inner else bind(equation, operands)
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _enter(equation: Any, operands: list[Any]) -> list[Any]:
    called = jaxprs.called(equation)
    if called is not None:
        return _evaluate(called.jaxpr, called.consts, operands)
    scan = jaxprs.scan(equation)
    if scan is not None and scan.length <= _LONGEST_UNROLLED_SCAN:
        return _unroll(scan, operands)
    raise StructureError(
        f"A collective stands inside {jaxprs.name(equation)}, and this step gives the replicas "
        "arrays of different shapes (a partial batch), so they can't run the loop together. Move "
        "the collective out of it, or use batch(..., drop_remainder=True)."
    )


def _unroll(scan: jaxprs.Scan, operands: list[Any]) -> list[Any]:
    consts, carry = operands[: scan.consts], operands[scan.consts :][: scan.carry]
    stacked = operands[scan.consts + scan.carry :]
    order = range(scan.length)
    rows: list[Any] = [None] * scan.length
    for i in reversed(order) if scan.reverse else order:
        inputs = [*consts, *carry, *(x[i] for x in stacked)]
        outputs = _evaluate(scan.body.jaxpr, scan.body.consts, inputs)
        carry, rows[i] = outputs[: scan.carry], outputs[scan.carry :]
    return [*carry, *(jax.numpy.stack(column) for column in zip(*rows, strict=True))]
