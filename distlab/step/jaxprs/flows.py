"""Walks over a replica function's jaxpr that follow marks on its values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from jax.extend import core

from distlab.step.jaxprs import operations
from distlab.step.jaxprs.divergence import Causes

T = TypeVar("T")


class Flow(ABC, Generic[T]):
    """A walk through a jaxpr, and the functions that it calls, with marks on values.

    The bodies of loops and branches are walked by themselves: no mark goes in or out. `causes` says
    for each operation, by its `id`, why its operands may differ between replicas.
    """

    def __init__(self, causes: dict[int, list[Causes]]) -> None:
        self._causes = causes

    def walk(self, jaxpr: Any, marks: Sequence[T | None] = (), site: Any = None) -> list[T | None]:
        """Returns the marks of a jaxpr's outputs."""
        known = dict(zip(jaxpr.invars, marks, strict=bool(marks)))

        def mark(atom: Any) -> T | None:
            return self.of_literal(atom) if isinstance(atom, core.Literal) else known.get(atom)

        for equation in jaxpr.eqns:
            at = equation if site is None else site
            operands = [mark(atom) for atom in equation.invars]
            outputs: list[T | None] = []
            called = None if operations.is_collective(equation) else operations.called(equation)
            if called is not None:
                outputs = self.walk(called.jaxpr, operands, at)
            elif operations.is_loop_or_branch(equation):
                for inner in operations.inner_jaxprs(equation):
                    self.walk(inner, (), at)
            elif equation.outvars:
                causes = self._causes.get(id(equation), [0] * len(operands))
                outputs = self.visit(equation, operands, causes, at)
            known.update(zip(equation.outvars, outputs, strict=False))
        return [mark(atom) for atom in jaxpr.outvars]

    def of_literal(self, literal: Any) -> T | None:
        """Returns the mark of a literal; none by default."""
        del literal
        return None

    @abstractmethod
    def visit(
        self, equation: Any, marks: list[T | None], causes: list[Causes], site: Any
    ) -> list[T | None]:
        """Returns the marks of an operation's outputs."""
