"""Findings in the trace of a replica function that are right in few programs.

All of it follows from the trace, once for each program, and only where somebody records.
`distlab.advice` decides what to report.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from distlab.events import Doubt
from distlab.step.jaxprs import operations
from distlab.step.programs.agreement import is_same_on_all
from distlab.step.programs.spmd import SpmdFunction
from distlab.step.review.causes import CausesOf
from distlab.step.review.loops import repeated_sums
from distlab.step.review.means import Mark, Means
from distlab.step.review.random import SharedRandomness
from distlab.step.review.tables import SparseGradients
from distlab.step.review.updates import (
    StatePart,
    matched,
    own_states,
    own_variables,
    renewed,
    same_work,
)
from distlab.variables.variable import Variable


class Found(NamedTuple):
    """The findings in the traces of a function."""

    doubts: list[Doubt]
    variables: dict[str, Variable]  # updated by each replica by itself
    states: dict[str, StatePart]  # likewise
    alike: list[int]  # results that are the same on all replicas
    renewed: list[int]  # results that are states which all replicas received alike


def found_in(spmd: SpmdFunction, function: str, equal: frozenset[int]) -> Found:
    """Returns what the traces of a replica function show."""
    found = Found([], {}, {}, [], [])
    known: set[tuple[str, str]] = set()
    averaged: list[tuple[float, Doubt]] = []
    single = False
    causes = [CausesOf(local, spmd.read, spmd.leaves, equal) for local in spmd.traces]
    for one in causes:
        variables = list(own_variables(one))
        states = list(own_states(one))
        found.variables.update({doubt.subject: variable for variable, doubt in variables})
        found.states.update({doubt.subject: state for state, doubt in states})
        own = [doubt for _, doubt in (*variables, *states)]
        means, of = _means(one, function, spmd.replicas)
        if of:
            averaged.append((of, means[0]))
        single = single or (1 in one.rows and not means)
        added = [mean for mean in means if mean.about == "sum_of_means"]
        for doubt in (
            *own,
            *_random(one, function),
            *same_work(one),
            *added,
            *_others(one, function),
        ):
            if (doubt.about, doubt.subject) not in known:
                known.add((doubt.about, doubt.subject))
                found.doubts.append(doubt)
    if averaged and single:  # a mean of one example begins with no division
        averaged.append((1, averaged[0][1]))
    if len({of for of, _ in averaged}) > 1:
        numbers = [of for of, _ in averaged]
        counts = {"fewest": min(numbers), "most": max(numbers)}
        found.doubts.append(
            Doubt(
                about="mean_of_means",
                subject=function,
                because="",
                source=averaged[0][1].source,
                numbers=counts,
            )
        )
    if len(causes) == 1:
        results = causes[0].of_outputs[: causes[0].local.computed]
        found.alike.extend(n for n, why in enumerate(results) if not causes[0].own(why))
        found.renewed.extend(renewed(causes[0]))
    return found


def _random(causes: CausesOf, function: str) -> Iterator[Doubt]:
    states = {tuple(v.shape) for v in causes.local.written}
    states |= {causes.shapes[state.argument] for state in matched(causes)}
    trains = bool(states) or operations.collective_in(causes.local.jaxpr.jaxpr) is not None
    # Masks of weights and noise on their gradients have the shapes of what all replicas receive.
    leaves = zip(causes.shapes, causes.of_leaf, strict=True)
    states |= {shape for shape, why in leaves if why & causes.whole}
    flow = SharedRandomness(causes.of_operands, causes.trusted, causes.rows, states)
    flow.walk(causes.local.jaxpr.jaxpr, [None] * len(causes.local.jaxpr.jaxpr.invars))
    if flow.found and trains:
        first = flow.found[0]
        yield Doubt(
            about="same_random",
            subject=function,
            because="",
            source=operations.user_line(first),
            numbers={"places": len({id(site) for site in flow.found})},
        )


def _means(causes: CausesOf, function: str, replicas: int) -> tuple[list[Doubt], float]:
    """Returns a doubt about added means, or averaged ones, and of how many examples they are."""
    jaxpr = causes.local.jaxpr.jaxpr
    flow = Means(causes.of_operands, replicas, causes.rows)
    marks = flow.walk(jaxpr, [None] * len(jaxpr.invars))
    local = causes.local
    new = {local.computed + n for n, v in enumerate(local.written) if is_same_on_all(v)}
    new |= {state.result for state in matched(causes)}
    new |= {n for n, declared in enumerate(local.declared) if declared is not None}
    kinds: dict[str, Mark] = {
        mark.kind: mark for n, mark in enumerate(marks) if mark is not None and n in new
    }
    about = "sum" if "sum" in kinds and not flow.adaptive else "average"
    if about not in kinds:
        return [], 0
    doubt = Doubt(
        about=f"{'sum' if about == 'sum' else 'mean'}_of_means",
        subject=function,
        because="",
        source=operations.user_line(flow.combined),
        numbers={"times": replicas, "examples": kinds[about].value},
    )
    return [doubt], kinds[about].value if about == "average" else 0


def _others(causes: CausesOf, function: str) -> Iterator[Doubt]:
    """Yields doubts about what is combined: mostly zeros, or again and again."""
    flow = SparseGradients(causes.of_operands)
    jaxpr = causes.local.jaxpr.jaxpr
    flow.walk(jaxpr, [None] * len(jaxpr.invars))
    for one in flow.found:
        yield Doubt(
            about="sparse_gradient",
            subject=operations.user_line(one.site) or "a table",
            because=causes.named(one.tables),
            source=operations.user_line(one.site),
            numbers={"used_rows": one.used, "rows": one.rows, "bytes": one.bytes},
        )
    for repeated in repeated_sums(jaxpr):
        line = operations.user_line(repeated)
        yield Doubt(about="repeated_sum", subject=line or function, because="", source=line)
