"""Data outside of datasets that moves between host and devices in every step.

A learning rate now and then is harmless. Arrays on the host that `run` receives are copied
to every device in every step; a dataset would divide and place them ahead of time.
Variables of another strategy also move in every step, by design only with central storage
and parameter servers.

Devices that copy from one another do so after the call that starts it, which alone is timed; the
text states that.

A read waits until the devices have computed its value. They are busy then, so that is no share of
the copy, and is named apart.

What each replica receives for itself must get there: batches that a dataset left on the host, and
values made for each replica. Batches are named where that is the bottleneck, as of those that the
input places (`waiting_input`); of values the program's own Python, which makes them, is.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np

from distlab.advice._columns import line_of_most
from distlab.advice._shares import loop_begin, loop_steps, saved_at_most, spent_in
from distlab.advice._texts import ms_text, new_advice, percent_text
from distlab.events import Advice
from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Flags, Ints
from distlab.text.bytes import bytes_text

CAUSE: Final = "host_transfer"
VALUES: Final = "values "
"""The first word for copies that `experimental_distribute_values_from_function` makes."""

_LEAST_BYTES: Final = 32 << 10
_LEAST_SHARE: Final = 0.3
_FEWEST: Final = 5
_OFTEN: Final = 0.5
_BATCH: Final = "batch "
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
    """Finds copies in the loop, in columns of `folds.Evidence`."""
    copies, steps = columns["copies"], columns["steps"]
    if len(steps["step"]) < _FEWEST:
        return []
    rows_of: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for row, (what, direction) in enumerate(zip(copies["what"], copies["direction"], strict=True)):
        rows_of[what, direction, int(copies["strategy"][row])].append(row)
    begin = loop_begin(columns)
    found = []
    for (what, direction, strategy), rows in rows_of.items():
        name = columns["strategies"].get(strategy, ("", []))[0]
        if direction == "between_devices" and name.startswith(_KEEP_VARIABLES_ELSEWHERE):
            continue
        if what.startswith(VALUES):
            continue
        inside = [row for row in rows if begin <= copies["time_ns"][row]]
        own = steps["strategy"] == strategy if direction != "to_host" else steps["step"] >= 0
        if len(inside) < max(_FEWEST, _OFTEN * _steps_during(columns, inside, own)):
            continue
        begun, spent = copies["time_ns"][inside], copies["duration_ns"][inside]
        waiting = np.maximum(copies["waiting_ns"][inside], 0)
        copying = spent - waiting
        foreign = direction == "between_devices" and what.startswith("argument ")
        share = spent_in(columns, begun + waiting, copying).share
        typical = float(np.median(copies["bytes"][inside]))
        # A coordinator's functions pass batches of their own datasets on to `run`.
        coordinated = name.startswith(_SERVERS) and direction == "to_devices"
        batch = what.startswith(_BATCH) or coordinated
        large = typical >= _LEAST_BYTES and not batch
        if not large and (share < _LEAST_SHARE or (batch and np.median(spent) < _LEAST_NS)):
            continue
        remedy = "batch" if batch else "argument" if foreign else direction
        each, seconds = float(np.mean(copying)), spent_in(columns, begun, spent).seconds
        found.append(
            new_advice(
                CAUSE,
                what,
                f"In every step {what} {_are(what)} {_MOVES[direction]}: "
                f"{bytes_text(typical)} each time"
                f"{'; starting that takes' if direction == 'between_devices' else ','} "
                f"{ms_text(each)}, {percent_text(share)} of the loop's time."
                f"{_COPY_LATER if direction == 'between_devices' else ''}"
                f"{_wait_text(waiting)}",
                _REMEDIES[remedy],
                evidence={
                    "bytes": typical,
                    "times": len(inside),
                    "copy_ms": each / 1e6,
                    "share": share,
                }
                | ({"waiting_ms": _typical_ms(waiting)} if waiting.any() else {}),
                page="placement",
                share=share,
                steps=loop_steps(columns),
                source=line_of_most([copies["source"][row] for row in inside], spent),
                saves_s=saved_at_most(columns, seconds),
            )
        )
    return found


def _are(what: str) -> str:
    return "are" if what.startswith("variables ") else "is"


def _typical_ms(nanoseconds: Ints) -> float:
    return float(np.median(nanoseconds)) / 1e6


def _wait_text(waiting: Ints) -> str:
    """Returns a sentence about the wait for values that devices still compute."""
    typical = _typical_ms(waiting)
    if round(typical) == 0:
        return ""
    return f" Before that the program waits {ms_text(typical * 1e6)} for the devices to compute it."


def _steps_during(columns: EvidenceColumns, rows: list[int], own: Flags) -> int:
    """Returns how many of these steps there were from the first copy to the last."""
    if not rows:
        return 0
    times = columns["steps"]["time_ns"][own]
    first, last = columns["copies"]["time_ns"][[rows[0], rows[-1]]]
    return int(((times >= first) & (times <= last)).sum())
