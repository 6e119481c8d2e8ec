"""Functions that are compiled again and again.

A function may have a few programs: for full batches, for the last batch, for evaluation. It
has too many when there are five or more, and at most five steps for each, since only use
repays a compilation.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Final

import numpy as np

from distlab.advice._texts import new_advice, percent_text
from distlab.events import Advice, Compile, OwnPython
from distlab.folds import EvidenceColumns
from distlab.text.units import counted

CAUSE: Final = "recompilation"

_FEWEST: Final = 5
_STEPS_A_PROGRAM: Final = 5
_ADDED: Final = re.compile(r"([^\[.,\s]+)[^\s,]*(?:, \S+)* added or removed$")
"""The first argument that came or went: `history` of `history[1], history[2] added or removed`."""

_SHAPE: Final = re.compile(r"\b[a-z]+\d*\[[\d, ]*\]")
"""The type of an array, such as `float32[8, 2]`."""

_PLACED: Final = (
    "Keep the argument's placement: put it with jax.device_put and one sharding before the first "
    "call, and name out_shardings= where a function returns it."
)

_SLACK_NS: Final = 100_000_000
"""The `Run` event is made with the process's first event, which may be a compilation."""


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds functions that are compiled too often, in columns of `folds.Evidence`."""
    functions: dict[tuple[int, str, str], list[Compile]] = defaultdict(list)
    begin, ran = columns["begin_ns"], set(columns["steps"]["program"].tolist())
    for event in columns["compiles"]:
        if event.time_ns < (begin - _SLACK_NS if event.program in ran else begin):
            continue  # compiled before the recording, for steps outside of it
        if event.mode == "eager":
            continue
        # An observed function may run on a mesh at a time.
        strategy = -1 if event.strategy in columns["meshes"] else event.strategy
        functions[strategy, event.function, event.source].append(event)
    found = [
        _recompiled(columns, name, events) or _moved(columns, name, events)
        for (_, name, _), events in functions.items()
    ]
    return [advice for advice in found if advice is not None]


def _recompiled(columns: EvidenceColumns, function: str, events: list[Compile]) -> Advice | None:
    steps = columns["steps"]
    programs = {event.program for event in events}
    own = np.isin(steps["program"], list(programs))
    if len(events) < _FEWEST or own.sum() > _STEPS_A_PROGRAM * len(events):
        return None
    spent = sum(event.trace_ns + event.compile_ns for event in events)
    elapsed = events[-1].time_ns - events[0].time_ns + events[0].trace_ns + events[0].compile_ns
    anew = sum(event.cause == "new function" for event in events) > len(events) / 2
    # The program's own operations of JAX are compiled for new shapes as well.
    besides = 0 if anew else _own_compilations(columns)
    saved = (_again(columns, events) + besides) / max(int(own.sum()), 1)
    if anew:
        subject = f"function {function}"
        why, remedy = _why_anew(events)
    else:
        argument, change = changing(events)
        subject = f"argument {argument}" if argument else "arguments"
        why = f"{argument or 'the structure of its arguments'} changes ({change})"
        remedy = (
            "Keep the argument's shape: pad it, batch with drop_remainder=True, or group by length "
            "into few sizes. Pass a changing number as an array, not in a string or object."
        )
        if all(event.cause == "new sharding" for event in events[1:]):
            remedy = _PLACED
        elif " -> " in change and not _SHAPE.search(change):
            remedy = (
                "Pass a value that changes as an array, or keep it to few values: the function is "
                "compiled for each value of a string, an object or a static argument."
            )
    share = spent / max(elapsed, 1)
    return new_advice(
        CAUSE,
        subject,
        f"{function} was compiled {len(events)} times for {int(own.sum())} steps, since {why}; "
        f"that took {spent / 1e9:.1f} s, {percent_text(min(share, 1.0))} of the time from the "
        "first of them to the last.",
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
        source=events[-1].source,
        saves_s=saved / 1e9,
    )


def _moved(columns: EvidenceColumns, function: str, events: list[Compile]) -> Advice | None:
    """Finds a program that few steps used, before arguments came with another placement."""
    used = columns["steps_of"]
    pairs = [
        (before, after)
        for before, after in pairwise(events)
        if after.cause == "new sharding" and 0 < used.get(before.program, 0) <= _STEPS_A_PROGRAM
    ]
    if not pairs:
        return None
    argument, change = changing([after for _, after in pairs])
    spent = sum(before.trace_ns + before.compile_ns for before, _ in pairs)
    first, last = pairs[0][0], pairs[-1][1]
    steps = sum(used[before.program] for before, _ in pairs)
    taken = sum(used.get(event.program, 0) for event in events)
    began = min(first.time_ns - first.trace_ns - first.compile_ns, columns["begin_ns"])
    ended = max([last.time_ns, *columns["steps"]["dispatched_ns"][-1:].tolist()])
    share = spent / max(ended - began, 1)
    return new_advice(
        CAUSE,
        f"argument {argument}",
        f"{function} was compiled again after {counted(steps, 'step')}, since only the "
        f"placement of {argument} changed ({change}); the first program took {spent / 1e9:.1f} s.",
        _PLACED,
        evidence={
            "compilations": len(events),
            "compiling_s": spent / 1e9,
            "share": min(share, 1.0),
        },
        page="events",
        share=share,
        time_ns=last.time_ns,
        source=last.source,
        saves_s=spent / 1e9 / max(taken, 1),
    )


def _again(columns: EvidenceColumns, events: list[Compile]) -> float:
    """Returns the nanoseconds by which all compilations but the first made calls longer."""
    steps = columns["steps"]
    calls = steps["dispatched_ns"] - steps["time_ns"]
    rows = {event.program: np.flatnonzero(steps["program"] == event.program) for event in events}
    others = np.concatenate([own[1:] for own in rows.values()])
    usual = float(np.median(calls[others])) if len(others) else 0.0
    spent = 0.0
    for event in events[1:]:
        own = rows[event.program]
        # A call also finds out that there is no such program, and loads the new one.
        longer = float(calls[own[0]]) - usual if len(own) else 0.0
        spent += max(longer, event.trace_ns + event.compile_ns)
    return spent


def _own_compilations(columns: EvidenceColumns) -> int:
    """Returns the nanoseconds in which JAX compiled outside of distlab's calls."""
    stacks = columns["own_python"].items()
    return sum(ns for stack, ns in stacks if stack.endswith(OwnPython.COMPILES))


def _why_anew(events: list[Compile]) -> tuple[str, str]:
    """Returns why a function is another one each time, and what to do."""
    why = "it is a new function object each time"
    referred = next((one.changed for one in reversed(events) if one.changed), "")
    if not referred:
        return (
            why,
            "Define the function once, outside of the loop, and pass changing values as arguments.",
        )
    names = ", ".join(dict.fromkeys(part.partition(":")[0] for part in referred.split("; ")))
    return (
        f"{why}, and what it refers to changes ({referred})",
        f"Define the function once, outside of the loop, and pass {names} as an argument.",
    )


def changing(events: list[Compile]) -> tuple[str, str]:
    """Returns the argument that changed most often, and its last change."""
    named: Counter[str] = Counter()
    last: dict[str, str] = {}
    for event in events:
        for change in filter(None, event.changed.split("; ")):
            name, colon, how = change.partition(": ")
            if not colon:
                come_or_gone = _ADDED.match(change)
                name, how = come_or_gone[1] if come_or_gone else "", change
            named[name] += 1
            last[name] = how
    if not named:
        return "", "the same shapes"
    name = named.most_common(1)[0][0]
    return name, last[name]
