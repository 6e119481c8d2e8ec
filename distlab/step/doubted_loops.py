"""Sums over the replicas inside a loop that could be combined once, after it.

A loop that adds up gradients combines in each round what does not depend on the rounds before. One
that trains in each round does: its next gradients are those of the weights that the last sum led
to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, final

from distlab.step import jaxprs


def repeated_sums(jaxpr: Any) -> Iterator[Any]:
    """Yields the collectives in loops whose operands depend on no collective of an earlier round.

    Args:
      jaxpr: The open jaxpr of a replica function.
    """
    for equation in jaxpr.eqns:
        yield from _in_loop(equation)
        for inner in jaxprs.inner_jaxprs(equation):
            yield from repeated_sums(inner)


def _in_loop(equation: Any) -> Iterator[Any]:
    scan, loop = jaxprs.scan(equation), jaxprs.while_loop(equation)
    if scan is not None:
        body, before, carry = scan.body.jaxpr, scan.consts, scan.carry
    elif loop is not None:
        body, before = loop.body.jaxpr, loop.body_consts
        carry = len(body.invars) - before
    else:
        return
    after = len(body.invars) - before - carry
    passed = [False] * carry
    while True:  # until it is known which parts of the carry depend on a collective
        outputs = _Round(sums_count=True).walk(body, [*[False] * before, *passed, *[False] * after])
        following = [old or new for old, new in zip(passed, outputs, strict=False)]
        if following == passed:
            break
        passed = following
    last = _Round(sums_count=False)
    last.walk(body, [*[False] * before, *passed, *[False] * after])
    yield from last.independent


@final
class _Round:
    """One round of a loop, in which some values depend on collectives.

    Args:
      sums_count: Whether results of the round's own collectives do.

    Attributes:
      independent: The collectives whose operands do not.
    """

    def __init__(self, *, sums_count: bool) -> None:
        self.independent: list[Any] = []
        self._sums_count = sums_count

    def walk(self, jaxpr: Any, depends: Sequence[bool]) -> list[bool]:
        """Returns which outputs of a jaxpr depend on collectives, by which inputs do."""
        known: dict[Any, bool] = dict(zip(jaxpr.invars, depends, strict=False))

        def of(atom: Any) -> bool:
            return not hasattr(atom, "val") and known.get(atom, False)

        for equation in jaxpr.eqns:
            operands = [of(atom) for atom in equation.invars]
            results = self._of(equation, operands)
            known.update(zip(equation.outvars, results, strict=True))
        return [of(atom) for atom in jaxpr.outvars]

    def _of(self, equation: Any, operands: list[bool]) -> list[bool]:
        depends = any(operands)
        if jaxprs.is_collective(equation):
            if not depends:
                self.independent.append(equation)
            return [depends or self._sums_count] * len(equation.outvars)
        called = jaxprs.called(equation)
        if called is not None:
            return self.walk(called.jaxpr, operands)
        depends = depends or (self._sums_count and jaxprs.calls_collective(equation))
        return [depends] * len(equation.outvars)
