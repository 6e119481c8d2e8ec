"""Finds collectives that some replicas would come to and others not.

A branch or loop that is chosen by what differs between replicas may lead some
of them past a collective for which the others wait for good (on CPU devices
XLA ends the process after 40 s). So each value of a replica function is
followed: whether it may differ between replicas, or is the same on all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend import core

from distlab.devices import jaxprs
from distlab.errors import StructureError


def require_all_meet(closed: core.ClosedJaxpr, differ: Sequence[bool]) -> None:
    """Checks that all replicas come to the same collectives.

    Args:
      closed: what one replica computes.
      differ: for each input, whether it may differ between replicas.

    Raises:
      StructureError: a collective stands in a branch or loop that replicas may
        take differently.
    """
    _follow(closed.jaxpr, differ)


def _follow(jaxpr: Any, differ: Sequence[bool]) -> list[bool]:
    """Returns which outputs may differ between replicas."""
    known: dict[Any, bool] = dict(zip(jaxpr.invars, differ, strict=True))

    def differs(atom: Any) -> bool:
        return not isinstance(atom, core.Literal) and known.get(atom, False)

    for equation in jaxpr.eqns:
        operands = [differs(atom) for atom in equation.invars]
        known.update(zip(equation.outvars, _outputs(equation, operands), strict=True))
    return [differs(atom) for atom in jaxpr.outvars]


def _outputs(equation: Any, operands: list[bool]) -> list[bool]:
    if jaxprs.is_replica_id(equation):
        return [True]
    if jaxprs.is_collective(equation):
        return [not jaxprs.is_same_on_all(equation)] * len(equation.outvars)
    followed = _inside(equation, operands)
    if followed is not None:
        return followed
    made_inside = any(jaxprs.collective_in(inner) for inner in jaxprs.inner_jaxprs(equation))
    return [made_inside or any(operands)] * len(equation.outvars)


def _inside(equation: Any, operands: list[bool]) -> list[bool] | None:
    """Follows the values through what an operation runs inside; None where it runs nothing."""
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
    return None if called is None else _follow(called.jaxpr, operands)


def _of_branches(branches: Sequence[Any], operands: list[bool]) -> list[bool]:
    choice, *given = operands
    if choice:
        for branch in branches:
            _require_none_in(branch, "jax.lax.cond or switch")
    columns = zip(*(_follow(branch, given) for branch in branches), strict=True)
    return [choice or any(column) for column in columns]


def _of_while(loop: jaxprs.While, operands: list[bool]) -> list[bool]:
    for_condition = operands[: loop.condition_consts]
    for_body = operands[loop.condition_consts :][: loop.body_consts]
    carry = operands[loop.condition_consts + loop.body_consts :]
    while True:
        (ends_differently,) = _follow(loop.condition, [*for_condition, *carry])
        if ends_differently:
            _require_none_in(loop.condition, "jax.lax.while_loop")
            _require_none_in(loop.body, "jax.lax.while_loop")
            return [True] * len(carry)
        after = _either(carry, _follow(loop.body, [*for_body, *carry]))
        if after == carry:
            return carry
        carry = after


def _of_scan(scan: jaxprs.Scan, operands: list[bool]) -> list[bool]:
    consts, rows = operands[: scan.consts], operands[scan.consts + scan.carry :]
    carry = operands[scan.consts :][: scan.carry]
    while True:
        outputs = _follow(scan.body.jaxpr, [*consts, *carry, *rows])
        after = _either(carry, outputs[: scan.carry])
        if after == carry:
            return [*carry, *outputs[scan.carry :]]
        carry = after


def _either(some: list[bool], others: list[bool]) -> list[bool]:
    return [a or b for a, b in zip(some, others, strict=True)]


def _require_none_in(jaxpr: Any, where: str) -> None:
    found = jaxprs.collective_in(jaxpr)
    if found is None:
        return
    raise StructureError(
        f"All replicas must come to every collective, but {found} stands inside {where}, which "
        "is decided by a value that may differ between replicas: those that go on without it "
        "would leave the others waiting for good. Call the collective outside, on what comes out "
        "of it, or decide by a value that is the same on all replicas, such as the result of an "
        "all_reduce."
    )
