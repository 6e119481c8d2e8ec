"""States that each replica updates by itself, and replicas that all do the same.

A mirrored variable holds one value. Where replicas assign what follows from their own examples,
without an all-reduce between, its copies come apart: each replica trains a model of its own. So do
the components of a state that `replicate` made. A component may be the replica's own by design (a
metric that is added up later, the error of a compressed gradient, an environment), so a state is
doubted only where other results depend on it too, and either nothing is combined across replicas
or other arrays of the same part of the state are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

from distlab.devices.layouts import WHOLE
from distlab.events import Doubt
from distlab.step.arguments.names import parent
from distlab.step.jaxprs import operations
from distlab.step.jaxprs.divergence import Causes, union
from distlab.step.programs.agreement import is_same_on_all
from distlab.step.review.causes import (
    CausesOf,
    Kind,
    is_inexact,
    is_key,
    is_meant_equal,
)
from distlab.variables.variable import Variable


class StatePart(NamedTuple):
    """A part of a functional state, by its positions among the arrays of arguments and results."""

    argument: int
    result: int
    data: tuple[int, ...] = ()  # the replica's own arguments that its new value follows from


def own_variables(causes: CausesOf) -> Iterator[tuple[Variable, Doubt]]:
    """Yields the mirrored variables that each replica assigns by itself."""
    local = causes.local
    outputs = zip(
        local.written,
        causes.of_outputs[local.computed :],
        local.jaxpr.jaxpr.outvars[local.computed :],
        strict=True,
    )
    for variable, why, out in outputs:
        own = causes.own(why)
        if own and is_meant_equal(variable) and is_inexact(variable.dtype):
            yield variable, _own_updates(causes, f"variable {variable.name}", own, out)


def own_states(causes: CausesOf) -> Iterator[tuple[StatePart, Doubt]]:
    """Yields the parts of a functional state that each replica updates by itself."""
    states = matched(causes)
    arguments = {state.argument for state in states}
    data = {
        position: why
        for position, (why, leaf) in enumerate(zip(causes.of_leaf, causes.leaves, strict=True))
        if position not in arguments and causes.own(why) and not is_key(leaf)
    }
    combines = _combines(causes)
    alike = [
        causes.leaves[state.argument].label
        for state in states
        if not causes.own(causes.of_outputs[state.result])
    ]
    beside = {parent(label) for label in alike}
    around = {part for label in alike for part in _named_parts(label)}
    outvars = causes.local.jaxpr.jaxpr.outvars
    for state in states:
        label = causes.leaves[state.argument].label
        own = causes.own(causes.of_outputs[state.result])
        needed = tuple(position for position, why in data.items() if own & why)
        trained = bool(needed) and _has_effect(causes, state)
        if trained and (
            not combines
            or parent(label) in beside
            or (not around.isdisjoint(_named_parts(label)) and _is_moved(causes, state))
        ):
            yield (
                state._replace(data=needed),
                _own_updates(causes, label, own, outvars[state.result]),
            )


def matched(causes: CausesOf) -> list[StatePart]:
    """Returns the parts of a state: arguments with a result of the same shape, in order."""
    results: dict[Kind, list[int]] = defaultdict(list)
    local = causes.local
    for position, out in enumerate(local.jaxpr.out_avals[: local.computed]):
        results[tuple(out.shape), out.dtype].append(position)
    found = []
    for position, (leaf, shape, why) in enumerate(
        zip(causes.leaves, causes.shapes, causes.of_leaf, strict=True)
    ):
        same = results.get((shape, leaf.dtype))
        equal = leaf.role == "split" and not causes.own(why)
        if same and equal and is_inexact(leaf.dtype):
            found.append(StatePart(position, same.pop(0)))
    return found


def renewed(causes: CausesOf) -> list[int]:
    """Returns the results that are new values of arrays that all replicas receive alike.

    The next step receives each replica's own: its copies are meant to be equal still.
    """
    results: dict[Kind, list[int]] = defaultdict(list)
    local = causes.local
    for position, out in enumerate(local.jaxpr.out_avals[: local.computed]):
        results[tuple(out.shape), out.dtype].append(position)
    found = []
    for leaf, shape, why in zip(causes.leaves, causes.shapes, causes.of_leaf, strict=True):
        same = results.get((shape, leaf.dtype))
        if same and leaf.partition is WHOLE and is_inexact(leaf.dtype):
            result = same.pop(0)
            if causes.of_outputs[result] & why:
                found.append(result)
    return found


def same_work(causes: CausesOf) -> Iterator[Doubt]:
    """Yields that all replicas train on what they all receive alike, where they do."""
    seen = list(_operations(causes.local.jaxpr.jaxpr))
    if any(causes.own(why) for e in seen for why in causes.of_operands.get(id(e), ())):
        return
    if any(operations.is_replica_id(equation) for equation in seen):
        return
    assigned = any(is_same_on_all(v) and is_inexact(v.dtype) for v in causes.local.written) or bool(
        matched(causes)
    )
    whole, passed_on = causes.whole & _examples(causes), _passed_on(causes)
    for equation in seen:
        why = union(causes.of_operands.get(id(equation), ()))
        examples = why & whole
        examples = examples & ~passed_on or examples
        combined = _is_large_sum(equation)
        trained = assigned and operations.is_product(equation) and why & ~causes.whole
        if examples and (combined or trained):
            yield Doubt(
                about="same_work",
                subject=f"argument {causes.named(examples)}",
                because=causes.named(examples),
                source=operations.user_line(equation),
            )
            return


def _own_updates(causes: CausesOf, subject: str, own: Causes, out: Any) -> Doubt:
    made = next((e for e in causes.local.jaxpr.jaxpr.eqns if out in e.outvars), None)
    return Doubt(
        about="own_updates",
        subject=subject,
        because=causes.named(own),
        source="" if made is None else operations.user_line(made),
    )


def _has_effect(causes: CausesOf, state: StatePart) -> bool:
    """Returns whether results other than its own new value depend on a part of a state."""
    bit = causes.of_leaf[state.argument]
    others = [why for n, why in enumerate(causes.of_outputs) if n != state.result]
    return any(why & bit for why in others)


def _combines(causes: CausesOf) -> bool:
    return any(
        _is_large_sum(equation) and any(map(causes.own, causes.of_operands.get(id(equation), ())))
        for equation in _operations(causes.local.jaxpr.jaxpr)
    )


def _is_large_sum(equation: Any) -> bool:
    return operations.is_collective(equation) and any(
        prod(atom.aval.shape) > 1 for atom in equation.invars
    )


def _examples(causes: CausesOf) -> Causes:
    return union(
        why for why, shape in zip(causes.of_leaf, causes.shapes, strict=True) if prod(shape) > 1
    )


def _passed_on(causes: CausesOf) -> Causes:
    """Returns the arguments that have a result of the same shape, as a state has."""
    local = causes.local
    results = {(tuple(o.shape), o.dtype) for o in local.jaxpr.out_avals[: local.computed]}
    arguments = zip(causes.of_leaf, causes.shapes, causes.leaves, strict=True)
    return union(why for why, shape, leaf in arguments if (shape, leaf.dtype) in results)


def _operations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        for inner in operations.inner_jaxprs(equation):
            yield from _operations(inner)


def _named_parts(label: str) -> Iterator[str]:
    """Yields the parts of an argument that hold a part with an array and others by their names.

    Of `state.params['a']['kernel']` that is `state.params`: neither the argument itself nor a
    sequence, which may hold a model and what is each replica's own.
    """
    part = parent(label)
    while whole := parent(part):
        if parent(whole) and not part.removeprefix(whole)[1:2].isdigit():
            yield whole
        part = whole


def _is_moved(causes: CausesOf, state: StatePart) -> bool:
    """Returns whether the new value is the old one and a change, as optimizers make it."""
    local = causes.local
    jaxpr = local.jaxpr.jaxpr
    return _is_sum_with(
        jaxpr, jaxpr.outvars[state.result], jaxpr.invars[len(local.read) + state.argument]
    )


def _is_sum_with(jaxpr: Any, out: Any, old: Any) -> bool:
    made = next((e for e in jaxpr.eqns if out in e.outvars), None)
    if made is None:
        return False
    called = operations.called(made)
    if called is None:
        return operations.is_addition(made) and any(atom is old for atom in made.invars)
    inner = called.jaxpr
    result = inner.outvars[made.outvars.index(out)]
    olds = [v for v, atom in zip(inner.invars, made.invars, strict=False) if atom is old]
    return any(_is_sum_with(inner, result, one) for one in olds)
