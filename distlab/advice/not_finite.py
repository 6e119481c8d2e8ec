"""Numbers that are NaN or infinite from some step on, and the replica where that began.

A value that is not finite once, such as the norm of the first gradient, is none: the last three
values of a metric must be so, and three times as many as ever before a finite one. Who logs NaN
where there is nothing to log, as between two evaluations, has such series all along.

What nobody logs is seen in a function's own small results, such as its loss, where they were
finite before and are not in five steps or more.

In the step in which it begins one replica may have it alone, for an example of its own; in the
next one all replicas have it, by what they share. Then only a later step's arguments tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from distlab.advice._texts import new_advice, replicas_text
from distlab.events import Advice, NotFinite
from distlab.folds import EvidenceColumns
from distlab.folds.evidence import NotFiniteMetric

CAUSE: Final = "not_finite"

_FEWEST: Final = 3
_TIMES_BEFORE: Final = 3
_FEWEST_UNLOGGED: Final = 5
_REMEDY: Final = (
    "a learning rate that is too large, a mean over no examples (dl.nn.compute_average_loss "
    "counts each example once), or a logarithm of zero. jax_debug_nans stops at the operation."
)


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds what stays NaN or infinite, in columns of `folds.Evidence`."""
    steps = columns["steps"]["step"]
    results = sorted(columns["not_finite_results"], key=lambda one: one.step)
    metrics = {
        name: since
        for name, since in columns["not_finite"].items()
        if since.values >= _FEWEST and since.values > _TIMES_BEFORE * since.before
    }
    found = list(_of_metrics(columns, metrics, results))
    unlogged = [
        one
        for one in results
        if one.begun and one.steps >= _FEWEST_UNLOGGED and len(steps) and one.last_step >= steps[0]
    ]
    return found or [_of_result(columns, one) for one in unlogged[:1]]


def _of_metrics(
    columns: EvidenceColumns, metrics: dict[str, NotFiniteMetric], results: list[NotFinite]
) -> Iterator[Advice]:
    """Yields one advice for all metrics that begin at one step."""
    steps = sorted({since.step for since in metrics.values()})
    for step in steps:
        first, *others = [name for name, since in metrics.items() if since.step == step]
        since = metrics[first]
        origin = next((one for one in results if one.step <= since.step), None)
        also = f", and so is {others[0]}" if len(others) == 1 else ""
        also = f", and so are {len(others)} others" if len(others) > 1 else also
        yield new_advice(
            CAUSE,
            f"metric {first}",
            f"{first} is NaN or infinite from step {step:,} on, in {since.values:,} values{also}."
            + ("" if origin is None else f" {_origin(columns, origin)}"),
            _remedy(origin, columns),
            evidence={"first_step": step, "values": since.values} | _numbers(origin),
            page="overview",
            share=1.0,
            steps=[step if origin is None else origin.step, since.last_step],
            source="" if origin is None else origin.source,
        )


def _of_result(columns: EvidenceColumns, origin: NotFinite) -> Advice:
    return new_advice(
        CAUSE,
        f"function {origin.function}",
        f"What {origin.function} returns is NaN or infinite in its last {origin.steps:,} steps or "
        f"more. {_origin(columns, origin)}",
        _remedy(origin, columns),
        evidence={"first_step": origin.step, "values": origin.steps} | _numbers(origin),
        page="steps",
        share=1.0,
        steps=[origin.step, origin.last_step],
        source=origin.source,
    )


def _origin(columns: EvidenceColumns, origin: NotFinite) -> str:
    """Returns the sentence that says where it began."""
    began = f"It began in what {origin.function} returned at step {origin.step:,}"
    given = (
        f" Later, {replicas_text(origin.arguments)} had NaN or infinity in an argument, and no "
        "other."
        if origin.arguments
        else ""
    )
    if not origin.begun:
        return f"{began} or before.{given}"
    _, devices = columns["strategies"].get(origin.strategy, ("", []))
    if len(devices) < 2:
        return f"{began}."
    if len(origin.replicas) == len(devices):
        return (
            f"{began}, on all replicas at once: in what they share, such as the variables that "
            f"the step before has assigned, or in what the step combines.{given}"
        )
    return f"{began} on {replicas_text(origin.replicas)}, and on no other."


def _remedy(origin: NotFinite | None, columns: EvidenceColumns) -> str:
    if origin is not None and (replica := _numbers(origin).get("replica")) is not None:
        when = "in" if len(origin.replicas) == 1 else "near"
        step = f"{when} step {origin.step:,}"
        return f"Look at the examples of replica {replica} {step}. Causes are {_REMEDY}"
    steps = columns["steps"]["step"]
    if origin is not None and len(steps) and origin.step <= steps[0]:
        return f"Look at the first values of what it uses, and at the first batch: {_REMEDY}"
    return f"Look at the step before: {_REMEDY}"


def _numbers(origin: NotFinite | None) -> dict[str, float]:
    if origin is None or not origin.begun:
        return {}
    numbers: dict[str, float] = {"began_step": origin.step}
    if len(alone := origin.replicas) == 1 or len(alone := origin.arguments) == 1:
        numbers["replica"] = alone[0]
    return numbers
