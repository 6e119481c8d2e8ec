"""What a recorded run was, in one small dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from distlab.events import Event, Lost, Metric, Run, RunEnd, Step, Strategy, Unknown
from distlab.runs.totals import Totals


class Recorded(Protocol):
    """What a summary needs of a recorded run."""

    path: Path
    meta: dict[str, Any]

    @property
    def live(self) -> bool:
        """True while it is being recorded."""

    def events(self, kind: str | None = None) -> Iterator[Event | Unknown]:
        """Goes through the events of a kind."""


def summarize(run: Recorded, totals: Totals | None, ends: tuple[int, int] | None) -> dict[str, Any]:
    """Returns what a run was; `distlab.Run.summary` says what is in it.

    Args:
      run: the run.
      totals: the numbers that its file keeps, None when it has none.
      ends: the earliest and the latest time in nanoseconds, None when unknown.
    """
    live = run.live
    summary: dict[str, Any] = {
        "name": run.meta.get("name", run.path.name),
        "path": str(run.path),
        "status": "running" if live else "killed",
        "message": "" if live else "Its process ended without closing the recording.",
        "started": run.meta.get("unix_ns", 0) / 1e9,
        "seconds": 0.0,
        "host": run.meta.get("host", ""),
        "process": run.meta.get("process", 0),
        "platform": "",
        "devices": [],
        "strategies": [],
        "replicas": [],
        "steps": 0,
        "examples": 0,
        "total_steps": None,
        "metrics": {},
        "lost": 0,
        "versions": {},
    }
    if totals is None or ends is None:
        _add_all(summary, run.events())
        return summary
    for kind in ("run", "strategy", "run_end"):
        for event in run.events(kind):
            _add(summary, event)
    summary["steps"], summary["examples"] = totals.steps, totals.examples
    summary["metrics"], summary["lost"] = totals.metrics, totals.lost
    began = next((event.time_ns for event in run.events("run")), ends[0])
    summary["seconds"] = max(ends[1] - began, 0) / 1e9
    return summary


def _add_all(summary: dict[str, Any], events: Iterator[Event | Unknown]) -> None:
    """Goes through a run that kept no totals."""
    first_ns: int | None = None
    last_ns = 0
    for event in events:
        first_ns = event.time_ns if first_ns is None else first_ns
        last_ns = max(last_ns, event.time_ns)
        _add(summary, event)
    summary["seconds"] = 0.0 if first_ns is None else (last_ns - first_ns) / 1e9


def _add(summary: dict[str, Any], event: Event | Unknown) -> None:
    match event:
        case Step():
            summary["steps"] += 1
            summary["examples"] += event.examples
        case Metric():
            summary["metrics"].update(event.values)
        case Strategy():
            summary["strategies"].append(event.name)
            summary["replicas"].append(len(event.devices))
        case Lost():
            summary["lost"] += event.count
        case RunEnd():
            summary["status"], summary["message"] = event.status, event.message
        case Run():
            summary["platform"] = event.platform
            summary["devices"] = [device.name for device in event.devices]
            summary["total_steps"] = event.total_steps
            summary["versions"] = event.versions
        case _:
            pass
