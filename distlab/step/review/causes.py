"""Causes for which values in a trace may differ between replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, final

import jax
import jax.numpy as jnp

from distlab.devices.layouts import WHOLE
from distlab.step.arguments.leaves import Leaf
from distlab.step.jaxprs import divergence
from distlab.step.jaxprs.divergence import OWN, Causes, cause
from distlab.step.programs.agreement import has_equal_copies, is_same_on_all
from distlab.step.programs.trace import LocalTrace
from distlab.variables.variable import Variable

Kind: TypeAlias = tuple[tuple[int, ...], Any]
"""A shape and a dtype."""

_MOST_NAMED: Final = 3
_KEY_NUMBERS: Final = 4


@final
class CausesOf:
    """The causes for which the operations and outputs of a trace may differ between replicas."""

    def __init__(
        self,
        local: LocalTrace,
        read: Sequence[Variable],
        leaves: Sequence[Leaf],
        equal: frozenset[int],
    ) -> None:
        self.local = local
        self.leaves = leaves
        of_variable = {v: cause(n) for n, v in enumerate(read)}
        self.of_leaf = [cause(n) for n, _ in enumerate(leaves, len(read))]
        inputs: list[Any] = local.jaxpr.jaxpr.invars[len(local.read) :]
        self.shapes: list[tuple[int, ...]] = [tuple(atom.aval.shape) for atom in inputs]
        self.variables = divergence.union(of_variable.values())
        self.whole = divergence.union(
            why
            for why, leaf in zip(self.of_leaf, leaves, strict=True)
            if leaf.partition is WHOLE and not is_key(leaf)
        )
        mirrored = (why for v, why in of_variable.items() if is_same_on_all(v))
        keys = (
            why
            for why, leaf in zip(self.of_leaf, leaves, strict=True)
            if leaf.partition is WHOLE and is_key(leaf)
        )
        alike = (self.of_leaf[position] for position in equal)
        self.trusted = self.whole | divergence.union([*mirrored, *keys, *alike])
        self.of_operands: dict[int, list[Causes]] = {}
        every = self.variables | divergence.union(self.of_leaf)
        self.of_outputs = divergence.analysed(
            local.jaxpr,
            [*(0 if v is None else of_variable[v] for v in local.read), *self.of_leaf],
            every,
            self._observe,
        )
        self._names = {why: v.name for v, why in of_variable.items()}
        self._names |= {why: leaf.label for why, leaf in zip(self.of_leaf, leaves, strict=True)}
        self.rows = {
            shape[0]
            for why, leaf, shape in zip(self.of_leaf, leaves, self.shapes, strict=True)
            if self.own(why) and shape and shape[0] and not is_key(leaf)
        }

    def _observe(self, equation: Any, operands: list[Causes]) -> None:
        known = self.of_operands.get(id(equation))
        if known is not None:
            operands = [old | new for old, new in zip(known, operands, strict=True)]
        self.of_operands[id(equation)] = list(operands)

    def own(self, why: Causes) -> Causes:
        """Returns the causes for which a value differs between replicas."""
        return why & ~self.trusted

    def named(self, why: Causes) -> str:
        """Returns the names of causes, joined by commas."""
        names = [name for bit, name in self._names.items() if why & bit]
        more = len(names) - _MOST_NAMED
        text = ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        return text or ("the replica's number" if why & OWN else "")


def is_meant_equal(variable: Variable) -> bool:
    """Returns whether the copies of a variable should be equal, and nobody meant them to differ."""
    return has_equal_copies(variable) and not variable.storage.own_copies


def is_inexact(dtype: Any) -> bool:
    """Returns whether numbers of a dtype are trained: neither keys, counters nor flags are."""
    return not _is_extended(dtype) and jnp.issubdtype(dtype, jnp.inexact)


def is_key(leaf: Leaf) -> bool:
    """Returns whether an argument may be a key of random numbers, or some of them."""
    if _is_extended(leaf.dtype):
        return True
    few = bool(leaf.shapes[0]) and leaf.shapes[0][-1] <= _KEY_NUMBERS
    return leaf.dtype == jnp.uint32 and few


def _is_extended(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jax.dtypes.extended))
