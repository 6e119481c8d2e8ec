"""Jaxprs with their collectives at top level.

Replicas of different shapes run different programs between their collectives, so no
collective can stay inside a function that only one of the programs calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import jax
from jax.extend import core
from jax.extend.source_info_util import current_name_stack, user_context

from distlab.devices.mesh import AXIS
from distlab.errors import StructureError
from distlab.step.jaxprs import operations

_LONGEST_UNROLLED_SCAN: Final = 256


def flattened(closed: core.ClosedJaxpr, replicas: int) -> core.ClosedJaxpr:
    """Returns a replica function's jaxpr with every collective at top level."""
    if not any(map(operations.calls_collective, closed.jaxpr.eqns)):
        return closed
    inputs: list[Any] = closed.jaxpr.invars
    shapes = [jax.ShapeDtypeStruct(one.aval.shape, one.aval.dtype) for one in inputs]

    def flat(*inputs: Any) -> list[Any]:
        return _evaluate(operations.Inner(closed.jaxpr, tuple(closed.consts)), inputs)

    return jax.make_jaxpr(flat, axis_env=[(AXIS, replicas)])(*shapes)


@contextmanager
def located(equation: Any, names: Any) -> Iterator[None]:
    """Traces operations as an equation's: with its line in the user's program, and its names."""
    names = current_name_stack() + names
    with user_context(equation.source_info.traceback, name_stack=names), equation.ctx.manager:
        yield


def bind(equation: Any, inputs: Sequence[Any]) -> list[Any]:
    """Evaluates one equation; under tracing, traces it."""
    parameters = equation.primitive.get_bind_params(equation.params)
    with equation.ctx.manager:
        outputs = equation.primitive.bind(*inputs, **parameters)
    return list(outputs) if equation.primitive.multiple_results else [outputs]


def _evaluate(inner: operations.Inner, inputs: Sequence[Any]) -> list[Any]:
    """Evaluates a jaxpr with every call inlined that contains a collective."""
    jaxpr, consts = inner
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        operands = [read(atom) for atom in equation.invars]
        inlined = operations.calls_collective(equation)
        outputs = _inlined(equation, operands) if inlined else bind(equation, operands)
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _inlined(equation: Any, operands: list[Any]) -> list[Any]:
    """Evaluates an equation with a collective in it, without a call or loop around that."""
    called = operations.called(equation)
    if called is not None:
        outputs = _evaluate(called, operands)
        return operations.marked(outputs) if operations.is_marked(equation) else outputs
    scan = operations.scan(equation)
    if scan is not None and scan.length <= _LONGEST_UNROLLED_SCAN:
        return _unrolled(scan, operands)
    raise StructureError(
        f"A collective is inside {operations.name(equation)}, and this step's replicas have arrays "
        "of different shapes (a partial batch), so they can't share the branch or loop. Move the "
        "collective out of it, or use batch(..., drop_remainder=True)."
    )


def _unrolled(scan: operations.Scan, operands: list[Any]) -> list[Any]:
    split = scan.consts + scan.carry
    consts, carry, stacked = (
        operands[: scan.consts],
        operands[scan.consts : split],
        operands[split:],
    )
    body = operations.Inner(scan.body.jaxpr, tuple(scan.body.consts))
    order = range(scan.length)
    rows: list[Any] = [None] * scan.length
    for i in reversed(order) if scan.reverse else order:
        outputs = _evaluate(body, [*consts, *carry, *(x[i] for x in stacked)])
        carry, rows[i] = outputs[: scan.carry], outputs[scan.carry :]
    return [*carry, *(jax.numpy.stack(column) for column in zip(*rows, strict=True))]
