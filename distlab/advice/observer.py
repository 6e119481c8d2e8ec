"""Calls of `log` that cost too much, or lost events.

Each call of `log` is timed, so its share of the loop's time is known, and a twentieth is too much.
What the recorder takes besides is an estimate from some of its calls, which a busy machine makes
three times as large: it is shown, and no advice.

The time is that of the loop: what passes before the first step and with compiling would hide the
cost of a short run.
"""

from __future__ import annotations

from typing import Final

from distlab.advice._columns import line_of_most
from distlab.advice._texts import new_advice, percent_text
from distlab.events import Advice
from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Flags

CAUSE: Final = "recording_cost"

_LOGS: Final = 0.05
_LEAST_SECONDS: Final = 1.0


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds the cost of recording and lost events, in columns of `folds.Evidence`."""
    costs = columns["costs"]
    inside = _in_loop(columns)
    seconds = float((costs["time_ns"] - costs["start_ns"])[inside].sum()) / 1e9

    found = []
    share = float(costs["log_ns"][inside].sum()) / 1e9 / max(seconds, _LEAST_SECONDS)
    if share >= _LOGS:
        found.append(
            new_advice(
                CAUSE,
                "recorder",
                f"Calls of log take {percent_text(share)} of the loop's time.",
                "Log less often or fewer numbers, or take several steps in a scan.",
                evidence={"log_share": share},
                page="overview",
                source=line_of_most(costs["log_source"], costs["log_ns"]),
                share=share,
            )
        )
    if columns["lost"]:
        found.append(
            new_advice(
                CAUSE,
                "lost events",
                f"{columns['lost']:,} events were not recorded.",
                "Read the reasons on the Overview page; the other events are complete.",
                evidence={"lost_events": columns["lost"]},
                page="overview",
                share=0.0,
            )
        )
    return found


def _in_loop(columns: EvidenceColumns) -> Flags:
    """Returns the accounts of the loop: those after the first step in which nothing compiled.

    Where the first steps are not kept, the run is long enough for what was before them not to
    matter.
    """
    costs, called = columns["costs"], columns["steps"]["dispatched_ns"]
    all_kept = len(called) and called[0] >= columns["since_ns"]
    inside: Flags = costs["start_ns"] >= (called[0] if all_kept else 0)
    for one in columns["compiles"]:
        began = one.time_ns - one.trace_ns - one.compile_ns
        inside &= (costs["start_ns"] > one.time_ns) | (costs["time_ns"] < began)
    return inside
