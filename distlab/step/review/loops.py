"""Sums over the replicas inside a loop that could be combined once, after it.

A loop that adds up gradients combines in each round what no other round needs. One that trains in
each round does not: its next gradients are those of the weights that the last sum led to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, final

from jax.extend import core

from distlab.step.jaxprs import operations


def repeated_sums(jaxpr: Any) -> Iterator[Any]:
    """Yields the collectives in loops for which no collective or condition waits."""
    for equation in jaxpr.eqns:
        yield from _in_loop(equation)
        for inner in operations.inner_jaxprs(equation):
            yield from repeated_sums(inner)


def _in_loop(equation: Any) -> Iterator[Any]:
    scan, loop = operations.scan(equation), operations.while_loop(equation)
    if scan is not None:
        body, before, carry = scan.body.jaxpr, scan.consts, scan.carry
    elif loop is not None:
        body, before = loop.body.jaxpr, loop.body_consts
        carry = len(body.invars) - before
    else:
        return
    passed = [False] * carry
    while True:  # until it is known which parts of the carry depend on a collective
        one = _Round()
        inputs = [*[False] * before, *passed]
        outputs = one.walk(body, [*inputs, *[False] * (len(body.invars) - len(inputs))])
        following = [old or new for old, new in zip(passed, outputs, strict=False)]
        if following == passed:
            break
        passed = following
    goes_on = loop is not None and _Round().walk(
        loop.condition.jaxpr, [*[False] * loop.condition_consts, *passed]
    )
    if not one.waits and not (goes_on and any(goes_on)):
        yield from one.collectives


@final
class _Round:
    """One round of a loop."""

    def __init__(self) -> None:
        self.collectives: list[Any] = []
        self.waits = False

    def walk(self, jaxpr: Any, depends: Sequence[bool]) -> list[bool]:
        """Returns which outputs of a jaxpr depend on collectives, by which inputs do."""
        known: dict[Any, bool] = dict(zip(jaxpr.invars, depends, strict=True))

        def of(atom: Any) -> bool:
            return not isinstance(atom, core.Literal) and known.get(atom, False)

        for equation in jaxpr.eqns:
            results = self._of(equation, [of(atom) for atom in equation.invars])
            known.update(zip(equation.outvars, results, strict=True))
        return [of(atom) for atom in jaxpr.outvars]

    def _of(self, equation: Any, operands: list[bool]) -> list[bool]:
        depends = any(operands)
        if operations.is_collective(equation):
            self.collectives.append(equation)
            self.waits = self.waits or depends
            return [True] * len(equation.outvars)
        called = operations.called(equation)
        if called is not None:
            return self.walk(called.jaxpr, operands)
        inside = operations.calls_collective(equation)  # a loop or a branch
        self.waits = self.waits or (inside and depends)
        return [depends or inside] * len(equation.outvars)
