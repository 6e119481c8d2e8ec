"""A jaxpr cut at its collectives, so that replicas can compute different shapes between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import jax
from jax.extend import core

from distlab.devices.mesh import AXIS
from distlab.errors import StructureError

_LONGEST_UNROLLED_SCAN: Final = 256
CALLS: Final = {
    "pjit": "jaxpr",
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
"""Operations that run one inner program once, and the parameter that holds it."""


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
        if is_collective(equation):
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
        inner = any(collective_in(j) for j in inner_jaxprs(equation))
        outputs = _enter(equation, operands) if inner else bind(equation, operands)
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _enter(equation: Any, operands: list[Any]) -> list[Any]:
    name = equation.primitive.name
    if name in CALLS:
        inner = equation.params[CALLS[name]]
        consts = getattr(inner, "consts", ())
        return _evaluate(getattr(inner, "jaxpr", inner), consts, operands)
    if name == "scan" and equation.params["length"] <= _LONGEST_UNROLLED_SCAN:
        return _unroll(equation.params, operands)
    raise StructureError(
        f"A collective stands inside {name}, and this step gives the replicas arrays of different "
        "shapes (a partial batch), so they can't run the loop together. Move the collective out "
        "of it, or use batch(..., drop_remainder=True)."
    )


def _unroll(scan: dict[str, Any], operands: list[Any]) -> list[Any]:
    closed, n_consts, n_carry = scan["jaxpr"], scan["num_consts"], scan["num_carry"]
    consts, carry = operands[:n_consts], operands[n_consts : n_consts + n_carry]
    stacked = operands[n_consts + n_carry :]
    order = range(scan["length"])
    rows: list[Any] = [None] * scan["length"]
    for i in reversed(order) if scan["reverse"] else order:
        outputs = _evaluate(
            closed.jaxpr, closed.consts, [*consts, *carry, *(x[i] for x in stacked)]
        )
        carry, rows[i] = outputs[:n_carry], outputs[n_carry:]
    return [*carry, *(jax.numpy.stack(column) for column in zip(*rows, strict=True))]


def inner_jaxprs(equation: Any) -> list[Any]:
    """Returns the jaxprs that an equation executes."""
    return list(core.jaxprs_in_params(equation.params))


def collective_in(jaxpr: Any) -> str | None:
    """Returns the name of the first collective in a jaxpr, at any depth, if there is one."""
    for equation in jaxpr.eqns:
        if is_collective(equation):
            return str(equation.primitive.name)
        for inner in inner_jaxprs(equation):
            found = collective_in(inner)
            if found is not None:
                return found
    return None


def is_collective(equation: Any) -> bool:
    """Says whether the replicas have to meet for an equation."""
    if equation.primitive.name == "axis_index":
        return False
    for key in ("axes", "axis_name"):
        axes = equation.params.get(key, ())
        if axes == AXIS or (isinstance(axes, tuple | list) and AXIS in axes):
            return True
    return False
