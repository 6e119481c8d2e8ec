"""Recording that costs too much itself, or lost events.

The recorder measures the time of its callers, also in each call of `log`, and of its threads. A
twentieth of the callers' time is too much, and so is a fifth of a core in the background. Profiles
don't count: they are bounded in the long run, and no program makes them cheaper by what it logs.

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

_CALLERS: Final = 0.05
_THREADS: Final = 0.2
_LEAST_SECONDS: Final = 1.0
_LEAST_EVENTS: Final = 50.0
"""Events a second; with fewer, the measured cost is that of a machine busy with other work."""


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds the cost of recording and lost events, in columns of `folds.Evidence`."""
    costs = columns["costs"]
    inside = _in_loop(columns)
    seconds = float((costs["time_ns"] - costs["start_ns"])[inside].sum()) / 1e9

    def total(*names: str) -> float:
        return float(sum(costs[name][inside].sum() for name in names))

    def share(*names: str) -> float:
        return total(*names) / 1e9 / seconds

    found = []
    if seconds >= _LEAST_SECONDS:
        events = total("events") / seconds
        logs, callers = share("log_ns"), share("emit_ns", "log_ns")
        threads = share("writer_ns", "watcher_ns")
        many = events >= _LEAST_EVENTS and (callers >= _CALLERS or threads >= _THREADS)
        in_log = ", most of it in calls of log," if 2 * logs >= callers else ""
        if many or logs >= _CALLERS:
            found.append(
                new_advice(
                    CAUSE,
                    "recorder",
                    f"Recording takes {percent_text(callers)} of the loop's time{in_log} and "
                    f"{percent_text(threads)} of another core without its profiles, for "
                    f"{events:,.0f} events a second.",
                    "Log less often or fewer numbers, do more in one step (several steps in a "
                    "scan), or set DISTLAB_RECORD=off.",
                    evidence={
                        "callers_share": callers,
                        "log_share": logs,
                        "threads_share": threads,
                        "events_per_s": events,
                    },
                    page="overview",
                    source=line_of_most(costs["log_source"], costs["log_ns"]) if in_log else "",
                    share=callers,
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
