"""Functions that are compiled again and again.

A function may have some programs: one for full batches, one for the last one, one
for evaluation. It is a storm when a function has five or more and one was made
for every five steps or fewer, since a program is worth its compilation only when
it is used.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

import numpy as np

from distlab.advice._finding import advice, percent
from distlab.events import Advice, Compile
from distlab.folds import EvidenceColumns

CAUSE: Final = "recompilation"

_FEWEST: Final = 5
_STEPS_A_PROGRAM: Final = 5
_SLACK_NS: Final = 100_000_000
"""The first event of a process makes the `Run` event, and may itself be a compilation."""


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds functions that are compiled too often; columns as `folds.Evidence` has them."""
    functions: dict[tuple[int, str, str], list[Compile]] = defaultdict(list)
    for event in columns["compiles"]:
        if event.time_ns < columns["begin_ns"] - _SLACK_NS:
            continue  # compiled before the recording began, for steps that are not in it
        functions[event.strategy, event.function, event.source].append(event)
    found = [_of(columns, name, events) for (_, name, _), events in functions.items()]
    return [one for one in found if one is not None]


def _of(columns: EvidenceColumns, function: str, events: list[Compile]) -> Advice | None:
    steps = columns["steps"]
    programs = {event.program for event in events}
    own = np.isin(steps["program"], list(programs))
    if len(events) < _FEWEST or own.sum() > _STEPS_A_PROGRAM * len(events):
        return None
    spent = sum(event.trace_ns + event.compile_ns for event in events)
    elapsed = events[-1].time_ns - events[0].time_ns + events[0].trace_ns + events[0].compile_ns
    anew = sum(event.cause == "new function" for event in events)
    if anew > len(events) / 2:
        subject = f"function {function}"
        why = "it is a new function object each time"
        remedy = (
            "Define the function once, outside of the loop, and pass what changes as arguments."
        )
    else:
        argument, change = _changing(events)
        subject = f"argument {argument}"
        why = f"{argument} changes ({change})"
        remedy = (
            "Give the argument one shape: pad it, batch with drop_remainder=True, or sort by "
            "length into few sizes. A number that changes belongs in an array, not in a string "
            "or object."
        )
    share = spent / max(elapsed, 1)
    return advice(
        CAUSE,
        subject,
        f"{function} was compiled {len(events)} times for {int(own.sum())} steps, since {why}; "
        f"that took {spent / 1e9:.1f} s, {percent(min(share, 1.0))} of the time.",
        remedy,
        evidence={
            "compilations": len(events),
            "steps": int(own.sum()),
            "compiling_s": spent / 1e9,
            "share": min(share, 1.0),
        },
        page="events",
        share=share,
        steps=steps["step"][own],
        time_ns=events[-1].time_ns,
    )


def _changing(events: list[Compile]) -> tuple[str, str]:
    """Returns the argument that changed most often, and how it did the last time."""
    named: Counter[str] = Counter()
    last: dict[str, str] = {}
    for event in events:
        for change in filter(None, event.changed.split("; ")):
            name, colon, how = change.partition(": ")
            named[name] += 1
            last[name] = how if colon else change
    if not named:
        return "unknown", "in its structure"
    name = named.most_common(1)[0][0]
    return name, last[name]
