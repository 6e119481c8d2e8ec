"""Values of a replica function that may differ between replicas.

Where a branch or loop depends on a value that differs between replicas, some of
them may skip a collective for which the others wait without end (on CPU devices
XLA aborts the process after 40 s). And a result that is declared to be the same on
all replicas must be so. So each value of a replica function is analysed: it may
differ between replicas, because of some of the function's inputs, or is uniform.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, final

from jax.extend import core

from distlab.errors import StructureError
from distlab.step.jaxprs import operations

Causes: TypeAlias = int
"""A set of bits: the inputs because of which a value may differ between replicas; 0 if uniform."""

OWN: Final[Causes] = 1
"""The bit of what differs by itself, such as the replica's number."""


def cause(number: int) -> Causes:
    """Returns the bit of an input."""
    return OWN << (number + 1)


Observer: TypeAlias = Callable[[Any, list[Causes]], None]
"""Receives each operation and why its operands may differ; in loops again, with more causes."""


def analysed(
    closed: core.ClosedJaxpr,
    inputs: Sequence[Causes],
    trusted: Causes = 0,
    observe: Observer | None = None,
) -> list[Causes]:
    """Returns why each output may differ between replicas."""
    return _Analysis(trusted, observe).of_jaxpr(closed.jaxpr, inputs)


def alike(operation: Any, operands: Sequence[bool]) -> list[bool]:
    """Returns which results of one operation are the same on all replicas, as some operands are."""
    causes = [0 if same else OWN for same in operands]
    return [not why for why in _Analysis(trusted=OWN, observe=None).of_equation(operation, causes)]


def require_reached(operation: Any, inputs: Sequence[Causes]) -> None:
    """Checks that all replicas reach the collectives inside of one operation."""
    _Analysis(trusted=0, observe=None).of_inner_jaxprs(operation, list(inputs))


@final
class _Analysis:
    """A walk through a jaxpr with the causes of its values."""

    def __init__(self, trusted: Causes, observe: Observer | None) -> None:
        self._trusted = trusted
        self._observe = observe

    def of_jaxpr(self, jaxpr: Any, inputs: Sequence[Causes]) -> list[Causes]:
        """Returns why each output of a jaxpr may differ."""
        known: dict[Any, Causes] = dict(zip(jaxpr.invars, inputs, strict=True))

        def causes(atom: Any) -> Causes:
            return 0 if isinstance(atom, core.Literal) else known.get(atom, 0)

        for equation in jaxpr.eqns:
            operands = [causes(atom) for atom in equation.invars]
            if self._observe is not None:
                self._observe(equation, operands)
            known.update(zip(equation.outvars, self.of_equation(equation, operands), strict=True))
        return [causes(atom) for atom in jaxpr.outvars]

    def of_inner_jaxprs(self, equation: Any, operands: list[Causes]) -> list[Causes] | None:
        """Analyses the jaxprs that an operation runs; returns None for any other operation."""
        branches = operations.branches(equation)
        if branches is not None:
            return self._of_branches(branches, operands)
        loop = operations.while_loop(equation)
        if loop is not None:
            return self._of_while(loop, operands)
        scan = operations.scan(equation)
        if scan is not None:
            return self._of_scan(scan, operands)
        called = operations.called(equation)
        return None if called is None else self.of_jaxpr(called.jaxpr, operands)

    def of_equation(self, equation: Any, operands: list[Causes]) -> list[Causes]:
        """Returns why each output of an operation may differ."""
        if operations.is_replica_id(equation):
            return [OWN]
        if operations.is_collective(equation):
            return [0 if operations.is_same_on_all(equation) else OWN] * len(equation.outvars)
        outputs = self.of_inner_jaxprs(equation, operands)
        if outputs is not None:
            return outputs
        own = 0
        if (
            operations.calls_collective(equation)
            or operations.calls_replica_id(equation)
            or operations.has_effect(equation)
        ):
            own = OWN
        return [own | union(operands)] * len(equation.outvars)

    def _of_branches(self, branches: Sequence[Any], operands: list[Causes]) -> list[Causes]:
        index, *rest = operands
        if index & ~self._trusted:
            for branch in branches:
                _require_no_collective(branch.jaxpr, "jax.lax.cond or switch")
        columns = zip(*(self.of_jaxpr(branch.jaxpr, rest) for branch in branches), strict=True)
        return [index | union(column) for column in columns]

    def _of_while(self, loop: operations.While, operands: list[Causes]) -> list[Causes]:
        for_condition = operands[: loop.condition_consts]
        for_body = operands[loop.condition_consts :][: loop.body_consts]
        carry = operands[loop.condition_consts + loop.body_consts :]
        while True:
            (diverges,) = self.of_jaxpr(loop.condition.jaxpr, [*for_condition, *carry])
            if diverges & ~self._trusted:
                _require_no_collective(loop.condition.jaxpr, "jax.lax.while_loop")
                _require_no_collective(loop.body.jaxpr, "jax.lax.while_loop")
            outputs = self.of_jaxpr(loop.body.jaxpr, [*for_body, *carry])
            after = [old | new | diverges for old, new in zip(carry, outputs, strict=True)]
            if after == carry:
                return carry
            carry = after

    def _of_scan(self, scan: operations.Scan, operands: list[Causes]) -> list[Causes]:
        consts, rows = operands[: scan.consts], operands[scan.consts + scan.carry :]
        carry = operands[scan.consts :][: scan.carry]
        while True:
            outputs = self.of_jaxpr(scan.body.jaxpr, [*consts, *carry, *rows])
            after = list(map(operator.or_, carry, outputs))
            if after == carry:
                return [*carry, *outputs[scan.carry :]]
            carry = after


def union(causes: Iterable[Causes]) -> Causes:
    """Returns all causes of several values."""
    return functools.reduce(operator.or_, causes, 0)


def _require_no_collective(jaxpr: Any, where: str) -> None:
    collective = operations.collective_in(jaxpr)
    if collective is None:
        return
    raise StructureError(
        f"All replicas must reach every collective, but {collective} is inside {where}, which "
        "depends on a value that may differ between replicas: those that skip it would leave the "
        "others waiting without end. Call the collective outside, on the result, or branch on a "
        "value that is the same on all replicas, such as the result of an all_reduce."
    )
