"""Refuses collectives under control flow that may diverge between the replicas.

Where a branch or loop depends on a value that differs between replicas, some of
them may skip a collective for which the others wait for ever (on CPU devices
XLA aborts the process after 40 s). So each value of a replica function is
analysed: it may differ between replicas, or is uniform.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend import core

from distlab.errors import StructureError
from distlab.step import jaxprs


def require_uniform_collectives(closed: core.ClosedJaxpr, differ: Sequence[bool]) -> None:
    """Checks that all replicas reach the same collectives.

    Args:
      closed: The jaxpr of one replica.
      differ: For each input, whether it may differ between replicas.

    Raises:
      StructureError: A collective is inside a branch or loop that may diverge
        between replicas.
    """
    _analyse(closed.jaxpr, differ)


def _analyse(jaxpr: Any, differ: Sequence[bool]) -> list[bool]:
    """Returns for each output whether it may differ between replicas."""
    known: dict[Any, bool] = dict(zip(jaxpr.invars, differ, strict=True))

    def differs(atom: Any) -> bool:
        return not isinstance(atom, core.Literal) and known.get(atom, False)

    for equation in jaxpr.eqns:
        operands = [differs(atom) for atom in equation.invars]
        known.update(zip(equation.outvars, _of_equation(equation, operands), strict=True))
    return [differs(atom) for atom in jaxpr.outvars]


def _of_equation(equation: Any, operands: list[bool]) -> list[bool]:
    if jaxprs.is_replica_id(equation):
        return [True]
    if jaxprs.is_collective(equation):
        return [not jaxprs.is_same_on_all(equation)] * len(equation.outvars)
    outputs = _of_inner_jaxprs(equation, operands)
    if outputs is not None:
        return outputs
    has_collective = any(jaxprs.collective_in(inner) for inner in jaxprs.inner_jaxprs(equation))
    return [has_collective or any(operands)] * len(equation.outvars)


def _of_inner_jaxprs(equation: Any, operands: list[bool]) -> list[bool] | None:
    """Analyses the jaxprs that an operation runs; returns None for any other operation."""
    branches = jaxprs.branches(equation)
    if branches is not None:
        return _of_branches(branches, operands)
    loop = jaxprs.while_loop(equation)
    if loop is not None:
        return _of_while(loop, operands)
    scan = jaxprs.scan(equation)
    if scan is not None:
        return _of_scan(scan, operands)
    called = jaxprs.called(equation)
    return None if called is None else _analyse(called.jaxpr, operands)


def _of_branches(branches: Sequence[Any], operands: list[bool]) -> list[bool]:
    index, *rest = operands
    if index:
        for branch in branches:
            _require_no_collective(branch.jaxpr, "jax.lax.cond or switch")
    columns = zip(*(_analyse(branch.jaxpr, rest) for branch in branches), strict=True)
    return [index or any(column) for column in columns]


def _of_while(loop: jaxprs.While, operands: list[bool]) -> list[bool]:
    for_condition = operands[: loop.condition_consts]
    for_body = operands[loop.condition_consts :][: loop.body_consts]
    carry = operands[loop.condition_consts + loop.body_consts :]
    while True:
        (diverges,) = _analyse(loop.condition.jaxpr, [*for_condition, *carry])
        if diverges:
            _require_no_collective(loop.condition.jaxpr, "jax.lax.while_loop")
            _require_no_collective(loop.body.jaxpr, "jax.lax.while_loop")
            return [True] * len(carry)
        after = _either(carry, _analyse(loop.body.jaxpr, [*for_body, *carry]))
        if after == carry:
            return carry
        carry = after


def _of_scan(scan: jaxprs.Scan, operands: list[bool]) -> list[bool]:
    consts, rows = operands[: scan.consts], operands[scan.consts + scan.carry :]
    carry = operands[scan.consts :][: scan.carry]
    while True:
        outputs = _analyse(scan.body.jaxpr, [*consts, *carry, *rows])
        after = _either(carry, outputs[: scan.carry])
        if after == carry:
            return [*carry, *outputs[scan.carry :]]
        carry = after


def _either(a: list[bool], b: list[bool]) -> list[bool]:
    return [x or y for x, y in zip(a, b, strict=True)]


def _require_no_collective(jaxpr: Any, where: str) -> None:
    collective = jaxprs.collective_in(jaxpr)
    if collective is None:
        return
    raise StructureError(
        f"All replicas must reach every collective, but {collective} is inside {where}, which "
        "depends on a value that may differ between replicas: those that skip it would leave the "
        "others waiting for ever. Call the collective outside, on the result, or branch on a "
        "value that is the same on all replicas, such as the result of an all_reduce."
    )
