"""Recording that costs too much itself, or could not keep up.

Its own account says what callers spent and what its threads used. A twentieth of
the callers' time is too much, and so is a fifth of a core in the background.
"""

from __future__ import annotations

from typing import Final

from distlab.advice._finding import advice, percent
from distlab.events import Advice
from distlab.folds import EvidenceColumns

CAUSE: Final = "recording_cost"

_CALLERS: Final = 0.05
_THREADS: Final = 0.2
_LEAST_SECONDS: Final = 2.0
_LEAST_EVENTS: Final = 50.0
"""Events a second: with fewer, what looks like a cost is a machine that is busy with others."""


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds that recording is too dear; columns as `folds.Evidence` has them."""
    costs = columns["costs"]
    seconds = float((costs["time_ns"] - costs["start_ns"]).sum()) / 1e9
    found = []
    if seconds >= _LEAST_SECONDS:
        events = float(costs["events"].sum()) / seconds
        callers = float(costs["emit_ns"].sum()) / 1e9 / seconds
        beside = costs["writer_ns"] + costs["watcher_ns"] + costs["capture_ns"]
        threads = float(beside.sum()) / 1e9 / seconds
        if events >= _LEAST_EVENTS and (callers >= _CALLERS or threads >= _THREADS):
            found.append(
                advice(
                    CAUSE,
                    "recorder",
                    f"Recording takes {percent(callers)} of the loop's time and "
                    f"{percent(threads)} of a core beside it, for {events:,.0f} events a second.",
                    "Log less often, do more in one step (several steps in a scan), or set "
                    "DISTLAB_RECORD=off.",
                    evidence={
                        "callers_share": callers,
                        "threads_share": threads,
                        "events_per_s": events,
                    },
                    page="overview",
                    share=callers,
                )
            )
    if columns["lost"]:
        found.append(
            advice(
                CAUSE,
                "lost events",
                f"{columns['lost']:,} events were not recorded.",
                "See the reasons on the Overview page; the rest of the recording is complete.",
                evidence={"lost_events": columns["lost"]},
                page="overview",
                share=0.0,
            )
        )
    return found
