"""Finds collectives that some replicas would come to and others not.

A branch or loop that is chosen by what differs between replicas may lead some
of them past a collective for which the others wait for good (on CPU devices
XLA ends the process after 40 s). So each value of a replica function is
followed: whether it may differ between replicas, or is the same on all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from jax.extend import core

from distlab.errors import StructureError
from distlab.step.segments import CALLS, collective_in, inner_jaxprs, is_collective

_SAME_ON_ALL: Final = frozenset(
    {"psum", "psum_invariant", "pmax", "pmin", "all_gather", "all_gather_invariant"}
)
"""Collectives that give all replicas the same. Others send something else to each."""


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
    name, params = equation.primitive.name, equation.params
    if name == "axis_index" and not operands:
        return [True]
    if is_collective(equation):
        return [name not in _SAME_ON_ALL] * len(equation.outvars)
    if name in _OF_CHOICES:
        return _OF_CHOICES[name](params, operands)
    if name in CALLS:
        inner = params[CALLS[name]]
        return _follow(getattr(inner, "jaxpr", inner), operands)
    made_inside = any(collective_in(inner) for inner in inner_jaxprs(equation))
    return [made_inside or any(operands)] * len(equation.outvars)


def _of_branches(params: dict[str, Any], operands: list[bool]) -> list[bool]:
    choice, *given = operands
    branches: Sequence[core.ClosedJaxpr] = params["branches"]
    if choice:
        for branch in branches:
            _require_none_in(branch.jaxpr, "jax.lax.cond or switch")
    columns = zip(*(_follow(branch.jaxpr, given) for branch in branches), strict=True)
    return [choice or any(column) for column in columns]


def _of_while(params: dict[str, Any], operands: list[bool]) -> list[bool]:
    condition, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
    n_condition, n_body = params["cond_nconsts"], params["body_nconsts"]
    for_condition, for_body = operands[:n_condition], operands[n_condition:][:n_body]
    carry = operands[n_condition + n_body :]
    while True:
        (ends_differently,) = _follow(condition, [*for_condition, *carry])
        if ends_differently:
            _require_none_in(condition, "jax.lax.while_loop")
            _require_none_in(body, "jax.lax.while_loop")
            return [True] * len(carry)
        after = _either(carry, _follow(body, [*for_body, *carry]))
        if after == carry:
            return carry
        carry = after


def _of_scan(params: dict[str, Any], operands: list[bool]) -> list[bool]:
    body, n_consts, n_carry = params["jaxpr"].jaxpr, params["num_consts"], params["num_carry"]
    consts, rows = operands[:n_consts], operands[n_consts + n_carry :]
    carry = operands[n_consts : n_consts + n_carry]
    while True:
        outputs = _follow(body, [*consts, *carry, *rows])
        after = _either(carry, outputs[:n_carry])
        if after == carry:
            return [*carry, *outputs[n_carry:]]
        carry = after


_OF_CHOICES: Final = {"cond": _of_branches, "while": _of_while, "scan": _of_scan}
"""Operations that decide at run time what is executed, and how often."""


def _either(some: list[bool], others: list[bool]) -> list[bool]:
    return [a or b for a, b in zip(some, others, strict=True)]


def _require_none_in(jaxpr: Any, where: str) -> None:
    found = collective_in(jaxpr)
    if found is None:
        return
    raise StructureError(
        f"All replicas must come to every collective, but {found} stands inside {where}, which "
        "is decided by a value that may differ between replicas: those that go on without it "
        "would leave the others waiting for good. Call the collective outside, on what comes out "
        "of it, or decide by a value that is the same on all replicas, such as the result of an "
        "all_reduce."
    )
