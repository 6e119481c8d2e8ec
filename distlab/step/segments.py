"""A jaxpr cut at its collectives, so that replicas can compute different shapes between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import jax
from jax.extend import core

from distlab.devices.mesh import AXIS
from distlab.errors import StructureError
from distlab.step import jaxprs

_LONGEST_UNROLLED_SCAN: Final = 256


class SegmentedJaxpr(NamedTuple):
    """A jaxpr cut at its collectives.

    Attributes:
      whole: The jaxpr, with every collective at top level.
      segments: The equations before the first collective, between collectives, and after.
      collectives: The collectives, one fewer than `segments`.
    """

    whole: core.ClosedJaxpr
    segments: list[list[Any]]
    collectives: list[Any]


def cut(closed: core.ClosedJaxpr, replicas: int) -> SegmentedJaxpr:
    """Cuts a replica function's jaxpr at its collectives.

    Args:
      closed: The jaxpr.
      replicas: The number of replicas.

    Raises:
      StructureError: A collective is inside a branch or a loop of unknown length,
        where replicas of different shapes can't share it.
    """
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in closed.jaxpr.invars]

    def inlined(*inputs: Any) -> list[Any]:
        return _evaluate(closed.jaxpr, closed.consts, inputs)

    whole = jax.make_jaxpr(inlined, axis_env=[(AXIS, replicas)])(*shapes)
    segments: list[list[Any]] = [[]]
    collectives = []
    for equation in whole.jaxpr.eqns:
        if jaxprs.is_collective(equation):
            collectives.append(equation)
            segments.append([])
        else:
            segments[-1].append(equation)
    return SegmentedJaxpr(whole, segments, collectives)


def bind(equation: Any, inputs: Sequence[Any]) -> list[Any]:
    """Evaluates one equation; under tracing, traces it."""
    parameters = equation.primitive.get_bind_params(equation.params)
    with equation.ctx.manager:
        outputs = equation.primitive.bind(*inputs, **parameters)
    return list(outputs) if equation.primitive.multiple_results else [outputs]


def _evaluate(jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Evaluates a jaxpr, with every call inlined that contains a collective."""
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        operands = [read(atom) for atom in equation.invars]
        has_collective = any(jaxprs.collective_in(j) for j in jaxprs.inner_jaxprs(equation))
        outputs = _inline(equation, operands) if has_collective else bind(equation, operands)
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _inline(equation: Any, operands: list[Any]) -> list[Any]:
    called = jaxprs.called(equation)
    if called is not None:
        return _evaluate(called.jaxpr, called.consts, operands)
    scan = jaxprs.scan(equation)
    if scan is not None and scan.length <= _LONGEST_UNROLLED_SCAN:
        return _unroll(scan, operands)
    raise StructureError(
        f"A collective is inside {jaxprs.name(equation)}, and this step's replicas have arrays of "
        "different shapes (a partial batch), so they can't share the branch or loop. Move the "
        "collective out of it, or use batch(..., drop_remainder=True)."
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
