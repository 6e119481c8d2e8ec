"""A recorded run in one small dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from distlab.events import Event, Run, RunEnd, Strategy, Unknown
from distlab.runs.totals import Totals

_WORST_FIRST: Final = ("failed", "interrupted", "finished")


class Recorded(Protocol):
    """A recorded run, as its summary reads it."""

    path: Path
    meta: dict[str, Any]

    @property
    def live(self) -> bool:
        """True while it is being recorded."""

    @property
    def processes(self) -> tuple[int, ...]:
        """Indices of the processes that recorded it."""

    def events(self, kind: str | None = None) -> Iterator[Event | Unknown]:
        """Yields the events of a kind."""


def summarize(run: Recorded, totals: Totals, ends: tuple[int, int]) -> dict[str, Any]:
    """Returns a run's summary; `distlab.Run.summary` lists its keys.

    Args:
      run: The run.
      totals: The numbers of its events.
      ends: The earliest and the latest time in nanoseconds.
    """
    live = run.live
    begins = [event for event in run.events("run") if isinstance(event, Run)]
    # A process announces itself again when its devices have started.
    newest = {(event.host, event.process): event for event in begins}
    strategies = {e.strategy: e for e in run.events("strategy") if isinstance(e, Strategy)}
    status, message = _status(run, live)
    return {
        "name": run.meta.get("name", run.path.name),
        "path": str(run.path),
        "status": status,
        "message": message,
        "started": run.meta.get("unix_ns", 0) / 1e9,
        "seconds": max(ends[1] - (begins[0].time_ns if begins else ends[0]), 0) / 1e9,
        "host": run.meta.get("host", ""),
        "process": run.meta.get("process", 0),
        "platform": next((e.platform for e in reversed(newest.values())), ""),
        "devices": [device.name for event in newest.values() for device in event.devices],
        "strategies": [event.name for event in strategies.values()],
        "replicas": [len(event.devices) for event in strategies.values()],
        "steps": totals.steps,
        "examples": totals.examples,
        "total_steps": next((e.total_steps for e in reversed(newest.values())), None),
        "metrics": totals.metrics,
        "lost": totals.lost,
        "versions": next((e.versions for e in reversed(newest.values())), {}),
    }


def _status(run: Recorded, live: bool) -> tuple[str, str]:
    """Returns how the run ended: as the process that ended worst."""
    ends = [event for event in run.events("run_end") if isinstance(event, RunEnd)]
    if len(ends) >= len(run.processes):
        worst = min(ends, key=lambda end: _WORST_FIRST.index(end.status))
        return worst.status, worst.message
    if live:
        return "running", ""
    return "killed", "Its process ended without closing the recording."
