"""Data outside of datasets that moves between host and devices in every step.

A learning rate now and then is harmless. Arrays on the host that `run` receives are copied
to every device in every step; a dataset would divide and place them ahead of time.
Variables of another strategy also move in every step, by design only with central storage
and parameter servers. Many small arrays cost as much as a large one: what one line copies in a
step is judged together.

Devices that copy from one another do so after the call that starts it, which alone is timed; the
text states that.

A read waits until the devices have computed its value. They are busy then, so that is no share of
the copy, and is named apart. Of a short copy neither share nor saving is stated: what is around it,
such as Keras' synchronization of its state, may take several times as long.

What each replica receives for itself must get there: batches that a dataset left on the host, and
values made for each replica. Batches are named where that is the bottleneck, as of those that the
input places (`waiting_input`); of values the program's own Python, which makes them, is.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np

from distlab.advice._shares import loop_begin, loop_steps, saved_at_most, spent_in
from distlab.advice._texts import ms_text, new_advice, percent_text
from distlab.events import Advice
from distlab.folds import EvidenceColumns
from distlab.text.bytes import bytes_text

CAUSE: Final = "host_transfer"
VALUES: Final = "values "
"""The first word for copies that `experimental_distribute_values_from_function` makes."""

_LEAST_BYTES: Final = 32 << 10
_LEAST_SHARE: Final = 0.3
_LEAST_STATED: Final = 0.1
_FEWEST: Final = 5
_OFTEN: Final = 0.5
_BATCH: Final = "batch "
_ARGUMENT: Final = "argument "
_LEAST_NS: Final = 2_000_000
_COPY_LATER: Final = " The devices copy after that, before they compute."
_SERVERS: Final = "ParameterServerStrategy"
_KEEP_VARIABLES_ELSEWHERE: Final = ("CentralStorageStrategy", _SERVERS)

_REMEDIES: Final = {
    "to_devices": "Distribute it as a dataset, or put it on the devices once, before the loop: "
    "strategy.replicate(...).",
    "to_host": "Read it less often, or after the loop; recording.log accepts device values "
    "without waiting for them.",
    "between_devices": "Create it in this strategy's scope, on its devices.",
    "batch": "Use smaller elements: a smaller dtype, or fewer fields.",
    "argument": "Put it on this strategy's devices once, before the loop: strategy.replicate(...).",
}
_MOVES: Final = {
    "to_devices": "copied from the host to the devices",
    "to_host": "copied back to the host",
    "between_devices": "copied from other devices",
}


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds copies in the loop, in columns of `folds.Evidence`: one advice a line."""
    copies, steps = columns["copies"], columns["steps"]
    if len(steps["step"]) < _FEWEST:
        return []
    begin = loop_begin(columns)
    rows_of: dict[tuple[str, str, str, int], list[int]] = defaultdict(list)
    for row, (what, direction) in enumerate(zip(copies["what"], copies["direction"], strict=True)):
        if begin <= copies["time_ns"][row] and not what.startswith(VALUES):
            kind = next((word for word in (_BATCH, _ARGUMENT) if what.startswith(word)), "")
            place = copies["source"][row] or what
            rows_of[kind, place, direction, int(copies["strategy"][row])].append(row)
    found = []
    for (kind, _, direction, strategy), rows in rows_of.items():
        name = columns["strategies"].get(strategy, ("", []))[0]
        if direction == "between_devices" and name.startswith(_KEEP_VARIABLES_ELSEWHERE):
            continue
        own = steps["strategy"] == strategy if direction != "to_host" else steps["step"] >= 0
        begun, spent = copies["time_ns"][rows], copies["duration_ns"][rows]
        times = steps["time_ns"][own]
        during, at = np.unique(np.searchsorted(times, begun, side="right"), return_inverse=True)
        if len(during) < max(_FEWEST, _OFTEN * ((times >= begun[0]) & (times <= begun[-1])).sum()):
            continue
        waiting = np.maximum(copies["waiting_ns"][rows], 0)
        copying, sizes = spent - waiting, copies["bytes"][rows]
        share = spent_in(columns, begun + waiting, copying).share
        typical, waited = (float(np.median(np.bincount(at, one))) for one in (sizes, waiting))
        # A coordinator's functions pass batches of their own datasets on to `run`.
        coordinated = name.startswith(_SERVERS) and direction == "to_devices"
        batch = kind == _BATCH or coordinated
        large = np.median(sizes[sizes >= sizes.mean()]) >= _LEAST_BYTES and not batch
        short = np.median(np.bincount(at, spent)) < _LEAST_NS
        if not large and (share < _LEAST_SHARE or (batch and short)):
            continue
        foreign = direction == "between_devices" and kind == _ARGUMENT
        remedy = "batch" if batch else "argument" if foreign else direction
        each, seconds = copying.sum() / len(during), spent_in(columns, begun, spent).seconds
        size_of = {copies["what"][row]: int(copies["bytes"][row]) for row in rows}
        stated = share >= _LEAST_STATED
        stated_share = f", {percent_text(share)} of the loop's time" if stated else ""
        names = sorted(size_of, key=lambda name: (-size_of[name], name))
        what = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        plural = len(names) > 1 or what.startswith("variables ")
        found.append(
            new_advice(
                CAUSE,
                what,
                f"In every step {what} {'are' if plural else 'is'} {_MOVES[direction]}: "
                f"{bytes_text(typical)} each time"
                f"{'; starting that takes' if direction == 'between_devices' else ','} "
                f"{ms_text(each)}{stated_share}."
                f"{_COPY_LATER if direction == 'between_devices' else ''}"
                f"{_wait_text(waited)}",
                _REMEDIES[remedy],
                evidence={
                    "bytes": typical,
                    "times": len(during),
                    "copy_ms": each / 1e6,
                }
                | ({"share": share} if stated else {})
                | ({"waiting_ms": waited / 1e6} if waiting.any() else {})
                | ({"arrays": len(names)} if len(names) > 1 else {}),
                page="placement",
                share=share,
                steps=loop_steps(columns),
                source=copies["source"][rows[0]],
                saves_s=saved_at_most(columns, seconds) if stated else 0.0,
            )
        )
    return found


def _wait_text(nanoseconds: float) -> str:
    """Returns a sentence about the wait for values that devices still compute."""
    if round(nanoseconds / 1e6) == 0:
        return ""
    return f" Before that the program waits {ms_text(nanoseconds)} for the devices to compute it."
