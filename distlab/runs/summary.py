"""The main facts of a recorded run, for a table of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from distlab.events import Run, RunEnd, Strategy
from distlab.folds.joining.members import MOST_WORKERS, WORST_FIRST, worker_name
from distlab.runs.recorded import Recorded
from distlab.runs.totals import Totals


class Summary(TypedDict):
    """The main facts of a run.

    Attributes:
      name: The run's name.
      path: Its folder.
      status: `"killed"` when its process ended without closing the recording.
      message: The exception's text, empty when nothing was raised.
      started: Seconds since 1970.
      seconds: Seconds from its begin to its end, or to its newest event.
      host: Name of the machine.
      process: Operating-system process number.
      platform: JAX's platform name.
      devices: Device names.
      strategies: Class name of each strategy.
      replicas: Number of replicas of each strategy.
      steps: Number of steps.
      rate: Steps per second, the mean from the first step to the last; None with fewer than two.
      examples: Examples of these steps.
      total_steps: Steps that the run is meant to take, None when unknown.
      config: Settings that the program stated, by name.
      metrics: The last value of each metric.
      lost: Number of events that were lost.
      missing: Names of the processes of a run that has ended whose files are not in its folder.
      versions: Package name to version.
    """

    name: str
    path: str
    status: Literal["running", "finished", "stopped", "failed", "interrupted", "killed"]
    message: str
    started: float
    seconds: float
    host: str
    process: int
    platform: str
    devices: list[str]
    strategies: list[str]
    replicas: list[int]
    steps: int
    rate: float | None
    examples: int
    total_steps: int | None
    config: dict[str, str | int | float | bool | None]
    metrics: dict[str, float]
    lost: int
    missing: list[str]
    versions: dict[str, str]


def gaps(summary: Summary) -> list[str]:
    """Returns texts about what a run lacks: events that were lost, and missing files."""
    lost, missing = summary["lost"], summary["missing"]
    return [
        *([f"{lost:,} {'event' if lost == 1 else 'events'} lost"] if lost else []),
        *([f"no file of {', '.join(missing)}"] if missing else []),
    ]


def summarize(
    run: Recorded, totals: Totals, ends: tuple[int, int], step_ends: tuple[int, int] | None
) -> Summary:
    """Returns a run's summary."""
    live = run.live  # before the events are read: a run that ends meanwhile has its end then
    begins = [event for event in run.events("run") if isinstance(event, Run)]
    # A process announces itself again when its devices have started.
    newest = list({(event.host, event.process): event for event in begins}.values())
    strategies = {e.strategy: e for e in run.events("strategy") if isinstance(e, Strategy)}
    finals = [event for event in run.events("run_end") if isinstance(event, RunEnd)]
    summary: Summary = {
        "name": run.meta.get("name", run.path.name),
        "path": str(run.path),
        "status": "running" if live else "killed",
        "message": "" if live else "Its process ended without closing the recording.",
        "started": run.meta.get("unix_ns", 0) / 1e9,
        "seconds": max(ends[1] - (begins[0].time_ns if begins else ends[0]), 0) / 1e9,
        "host": run.meta.get("host", ""),
        "process": run.meta.get("process", 0),
        "platform": newest[-1].platform if newest else "",
        "devices": [device.name for event in newest for device in event.devices],
        "strategies": [event.name for event in strategies.values()],
        "replicas": [len(event.replicas) for event in strategies.values()],
        "steps": totals.steps,
        "rate": _rate(totals.steps, step_ends),
        "examples": totals.examples,
        "total_steps": newest[-1].total_steps if newest else None,
        "config": newest[-1].config if newest else {},
        "metrics": totals.metrics,
        "lost": totals.lost,
        "missing": [] if live else _missing(begins, run.processes),
        "versions": newest[-1].versions if newest else {},
    }
    if len(finals) == len(run.processes) == len(newest) == 1:  # what is emitted later is no part
        summary["seconds"] = max(finals[0].time_ns - begins[0].time_ns, 0) / 1e9
    if len(finals) >= len(run.processes):
        worst = min(finals, key=lambda end: WORST_FIRST.index(end.status))
        summary["status"], summary["message"] = worst.status, worst.message
    return summary


def _rate(steps: int, ends: tuple[int, int] | None) -> float | None:
    if ends is None or steps < 2 or ends[1] <= ends[0]:
        return None
    return (steps - 1) * 1e9 / (ends[1] - ends[0])


def _missing(begins: list[Run], present: Sequence[int]) -> list[str]:
    """Returns the names of the processes that have no file; a damaged one names any number."""
    expected = min(max((event.processes for event in begins), default=1), MOST_WORKERS)
    return [worker_name(number) for number in range(expected) if number not in present]
