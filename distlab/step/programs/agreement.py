"""Proofs that replicas hold the same: results declared `Mirrored`, and variables.

What is assigned to a variable that is divided over the replicas is declared by that: each replica
keeps a part of it.

A replica function declares a result by returning it as `Mirrored`. That is proved from the
function's trace, so it costs nothing when the step runs: the result comes of all-reduces and
of what all replicas receive alike. When replicas have different shapes, all of them must also
compute it in the same way.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, final

from distlab.devices.layouts import WHOLE
from distlab.errors import StructureError
from distlab.step.arguments.leaves import Leaf
from distlab.step.jaxprs import divergence, operations
from distlab.step.jaxprs.divergence import OWN, Causes, cause
from distlab.step.programs.trace import LocalTrace
from distlab.step.ragged.same_values import same_outputs
from distlab.step.ragged.stages import Group
from distlab.variables import storage
from distlab.variables.variable import Variable

_MOST_NAMED: Final = 4


@final
class Agreement:
    """The outputs of a step that are the same on all replicas, and the variables that it rests on.

    The copies of a mirrored variable are equal unless one was assigned alone, which its storage
    knows. So a proof that relies on variables is looked at again when that changes.
    """

    def __init__(
        self,
        function: str,
        traces: Sequence[LocalTrace],
        groups: list[Group],
        read: Sequence[Variable],
        leaves: Sequence[Leaf],
    ) -> None:
        self._function = function
        self._names = [v.name for v in read] + [leaf.label for leaf in leaves]
        self._variables = {cause(n): v for n, v in enumerate(read) if has_equal_copies(v)}
        self._trusted: Causes = divergence.union(self._variables)
        self.parts_ways = False  # where some replicas alone may run a branch or loop
        inputs: list[Variable | Leaf] = [*read, *leaves]
        causes_of = {id(one): cause(n) for n, one in enumerate(inputs) if _may_differ(one)}
        columns = zip(
            *(
                divergence.analysed(
                    local.jaxpr,
                    [causes_of.get(id(one), 0) for one in (*local.read, *leaves)],
                    self._trusted,
                    self._note_branch,
                )
                for local in traces
            ),
            strict=True,
        )
        causes = list(map(divergence.union, columns))
        first = traces[0]
        if len(traces) > 1:
            asked = any(first.declared) or any(map(is_divided, first.written))
            known = same_outputs(groups) if asked else [False] * len(causes)
            causes = [why if same else why | OWN for why, same in zip(causes, known, strict=True)]
        results, written = causes[: first.computed], causes[first.computed :]
        self._declared = [
            (declared.refusal, why)
            for declared, why in zip(first.declared, results, strict=True)
            if declared is not None
        ]
        self._declared += [
            (functools.partial(_refused_parts, variable.name), why)
            for variable, why in zip(first.written, written, strict=True)
            if is_divided(variable)
        ]
        self._written = [
            (variable.storage, why)
            for variable, why in zip(first.written, written, strict=True)
            if has_equal_copies(variable)
        ]
        self.looked_at = -1
        self._require_declared()

    def _note_branch(self, operation: Any, operands: list[Causes]) -> None:
        if operations.branches(operation) is not None:
            operands = operands[:1]
        elif operations.while_loop(operation) is None:
            return
        self.parts_ways |= bool(divergence.union(operands) & ~self._trusted)

    def confirm(self) -> None:
        """Checks that the proofs still hold before the step runs, and notes what it sets apart."""
        if self.looked_at == storage.changes.last:
            return
        self._require_declared()
        for own, why in self._written:
            if why & ~self._trusted or any(v.storage.apart for v in self._relied_on(why)):
                own.set_apart(apart=True)
        self.looked_at = storage.changes.last

    def _require_declared(self) -> None:
        for refusal, why in self._declared:
            found = list(self._named(why & ~self._trusted))
            found += [v.name for v in self._relied_on(why) if not v.storage.agrees()]
            if found:
                raise StructureError(
                    refusal(
                        f"in {self._function} it may differ between them: it depends on "
                        f"{_listed(found)} without an all-reduce between"
                    )
                )

    def _relied_on(self, why: Causes) -> Iterator[Variable]:
        return (variable for bit, variable in self._variables.items() if why & bit)

    def _named(self, why: Causes) -> Iterator[str]:
        yield from (name for n, name in enumerate(self._names) if why & cause(n))
        if why & OWN:
            yield "what each replica does by itself (its number, its shapes, its Python)"


def _refused_parts(name: str, why: str) -> str:
    return (
        f"{name} is divided over the replicas, so all must assign it the same value, but {why}. "
        "Pass it, or the gradients that it is computed from, to "
        "distlab.get_replica_context().all_reduce first, or make the variable with an aggregation, "
        "or with layout=(), which keeps whole copies."
    )


def has_equal_copies(variable: Variable) -> bool:
    """Returns whether the copies of a variable should be equal."""
    layout = variable.storage.layout
    return layout.partition is WHOLE and not layout.one_copy


def is_divided(variable: Variable) -> bool:
    """Returns whether each replica has a part of a variable's value."""
    return variable.storage.layout.partition.axis is not None


def is_same_on_all(variable: Variable) -> bool:
    """Returns whether all replicas should read the same value of a variable."""
    layout = variable.storage.layout
    return layout.one_copy or has_equal_copies(variable) or is_divided(variable)


def _may_differ(one: Variable | Leaf) -> bool:
    if isinstance(one, Variable):
        return not one.storage.layout.one_copy and not is_divided(one)
    return one.partition is not WHOLE


def _listed(names: Iterable[str]) -> str:
    first = list(names)
    more = len(first) - _MOST_NAMED
    return ", ".join(first[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
