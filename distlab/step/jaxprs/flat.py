"""Jaxprs with their collectives, and their uses of the replica's number, at top level.

Replicas of different shapes run different programs between their collectives, so no
collective can stay inside a function that only one of the programs calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
from jax.extend import core

from distlab.devices.mesh import AXIS
from distlab.errors import StructureError
from distlab.step.jaxprs import operations

_LONGEST_UNROLLED_SCAN: Final = 256


def flattened(closed: core.ClosedJaxpr, replicas: int) -> core.ClosedJaxpr:
    """Returns a replica function's jaxpr with every collective at top level.

    What reads the replica's number is at top level, too, except in functions with a
    derivative of their own, and in operations that this module does not know.
    """
    if not any(map(_hides_something, closed.jaxpr.eqns)):
        return closed
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in closed.jaxpr.invars]

    def flat(*inputs: Any) -> list[Any]:
        replica_id = jax.lax.axis_index(AXIS)
        return _evaluate(operations.Inner(closed.jaxpr, tuple(closed.consts)), inputs, replica_id)

    return jax.make_jaxpr(flat, axis_env=[(AXIS, replicas)])(*shapes)


def bind(equation: Any, inputs: Sequence[Any]) -> list[Any]:
    """Evaluates one equation; under tracing, traces it."""
    parameters = equation.primitive.get_bind_params(equation.params)
    with equation.ctx.manager:
        outputs = equation.primitive.bind(*inputs, **parameters)
    return list(outputs) if equation.primitive.multiple_results else [outputs]


def _hides_something(equation: Any) -> bool:
    return operations.calls_collective(equation) or operations.calls_replica_id(equation)


def _evaluate(inner: operations.Inner, inputs: Sequence[Any], replica_id: Any) -> list[Any]:
    """Evaluates a jaxpr with every call inlined that contains a collective."""
    jaxpr, consts = inner
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        operands = [read(atom) for atom in equation.invars]
        if operations.is_replica_id(equation):
            outputs = [replica_id]
        elif operations.calls_collective(equation):
            outputs = _inlined(equation, operands, replica_id)
        elif operations.calls_replica_id(equation):
            outputs = _with_replica_id(equation, operands, replica_id)
        else:
            outputs = bind(equation, operands)
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _inlined(equation: Any, operands: list[Any], replica_id: Any) -> list[Any]:
    """Evaluates an equation with a collective in it, without a call or loop around that."""
    called = operations.called(equation)
    if called is not None:
        outputs = _evaluate(called, operands, replica_id)
        return operations.marked(outputs) if operations.is_marked(equation) else outputs
    scan = operations.scan(equation)
    if scan is not None and scan.length <= _LONGEST_UNROLLED_SCAN:
        return _unrolled(scan, operands, replica_id)
    raise StructureError(
        f"A collective is inside {operations.name(equation)}, and this step's replicas have arrays "
        "of different shapes (a partial batch), so they can't share the branch or loop. Move the "
        "collective out of it, or use batch(..., drop_remainder=True)."
    )


def _unrolled(scan: operations.Scan, operands: list[Any], replica_id: Any) -> list[Any]:
    consts, carry, stacked = _parts(scan, operands)
    order = range(scan.length)
    rows: list[Any] = [None] * scan.length
    for i in reversed(order) if scan.reverse else order:
        inputs = [*consts, *carry, *(x[i] for x in stacked)]
        outputs = _evaluate(_body(scan), inputs, replica_id)
        carry, rows[i] = outputs[: scan.carry], outputs[scan.carry :]
    return [*carry, *(jax.numpy.stack(column) for column in zip(*rows, strict=True))]


def _with_replica_id(equation: Any, operands: list[Any], replica_id: Any) -> list[Any]:
    """Evaluates an equation in which the replica's number is read, with the number given."""

    def function(inner: operations.Inner, *first: Any) -> Callable[..., list[Any]]:
        return lambda *rest: _evaluate(inner, (*first, *rest), replica_id)

    called, branches = operations.called(equation), operations.branches(equation)
    scan, loop = operations.scan(equation), operations.while_loop(equation)
    with equation.ctx.manager:
        if called is not None and not operations.has_derivative_rule(equation):
            return function(called)(*operands)
        if branches is not None:
            index, *rest = operands
            chosen: list[Any] = jax.lax.switch(index, list(map(function, branches)), *rest)
            return chosen
        if scan is not None:
            return _scan(scan, operands, replica_id)
        if loop is not None:
            consts = operands[: loop.condition_consts + loop.body_consts]
            condition = function(loop.condition, *consts[: loop.condition_consts])
            body = function(loop.body, *consts[loop.condition_consts :])
            carry: list[Any] = jax.lax.while_loop(
                lambda values: condition(*values)[0],
                lambda values: body(*values),
                operands[len(consts) :],
            )
            return carry
    return bind(equation, operands)


def _scan(scan: operations.Scan, operands: list[Any], replica_id: Any) -> list[Any]:
    consts, first, stacked = _parts(scan, operands)

    def iteration(carry: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        outputs = _evaluate(_body(scan), [*consts, *carry, *row], replica_id)
        return outputs[: scan.carry], outputs[scan.carry :]

    carry, rows = jax.lax.scan(
        iteration, first, stacked, length=scan.length, reverse=scan.reverse, unroll=scan.unroll
    )
    return [*carry, *rows]


def _body(scan: operations.Scan) -> operations.Inner:
    return operations.Inner(scan.body.jaxpr, tuple(scan.body.consts))


def _parts(scan: operations.Scan, operands: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Returns the operands that all iterations share, the first carry, and the rows."""
    split = scan.consts + scan.carry
    return operands[: scan.consts], operands[scan.consts : split], operands[split:]
