"""The table of runs as text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, TypedDict

from distlab.text.bytes import bytes_text
from distlab.text.metric_names import by_interest
from distlab.text.units import count_text, duration_text, plain, rate_text, value_text

NAMES: Final = (
    *("run", "started", "status", "steps", "rate", "took", "replicas", "size", "metrics", "key"),
)
_MOST_METRICS: Final = 3


class RunSummary(TypedDict):
    """A run in a folder of runs.

    Attributes:
      key: Its path in the folder, `"."` for the folder itself.
      name: Its own name.
      status: `"running"`, or how it ended.
      started: When it began, in seconds since 1970.
      seconds: How long it lasted.
      steps: How many steps it took.
      total_steps: How many it planned, None when it did not state them.
      replicas: How many replicas each of its strategies had.
      metrics: The last value of each metric.
      gaps: What it lacks: lost events, missing files.
      bytes: Bytes of its files.
      fault: Why it can't be read, empty for one that can.
    """

    key: str
    name: str
    status: str
    started: float
    seconds: float
    steps: int
    total_steps: int | None
    replicas: list[int]
    metrics: dict[str, float]
    gaps: list[str]
    bytes: int
    fault: str


def unreadable(key: str, fault: str, size: int) -> RunSummary:
    """Returns the summary of a run that can't be read."""
    return {
        "key": key,
        "name": key,
        "status": "can't be read",
        "started": 0.0,
        "seconds": 0.0,
        "steps": 0,
        "total_steps": None,
        "replicas": [],
        "metrics": {},
        "gaps": [],
        "bytes": size,
        "fault": fault,
    }


def run_rows(summaries: Iterable[RunSummary]) -> dict[str, list[str]]:
    """Returns the table's texts by column."""
    rows = [_row(summary) for summary in summaries]
    return {name: [row[name] for row in rows] for name in NAMES}


def _row(summary: RunSummary) -> dict[str, str]:
    if summary["fault"]:
        return {
            **dict.fromkeys(NAMES, "\u2013"),
            "run": plain(summary["key"] if summary["key"] != "." else summary["name"], 80),
            "status": summary["status"],
            "size": bytes_text(summary["bytes"]),
            "metrics": plain(summary["fault"], 300),
            "key": summary["key"],
        }
    steps, seconds = summary["steps"], summary["seconds"]
    total = summary["total_steps"]
    metrics = (
        f"{name} {value_text(summary['metrics'][name])}"
        for name in by_interest(summary["metrics"])[:_MOST_METRICS]
    )
    started = datetime.fromtimestamp(summary["started"], UTC).astimezone()
    status = "live" if summary["status"] == "running" else summary["status"]
    return {
        "run": plain(summary["key"] if summary["key"] != "." else summary["name"], 80),
        "started": f"{started:%Y-%m-%d %H:%M:%S}",
        "status": status,
        "steps": count_text(steps) + (f" of {count_text(total)}" if total else ""),
        "rate": rate_text(steps / seconds) if seconds else "\u2013",
        "took": duration_text(seconds),
        "replicas": str(max(summary["replicas"], default=0)),
        "size": bytes_text(summary["bytes"]),
        "metrics": plain(", ".join([*summary["gaps"], *metrics]), 120),
        "key": summary["key"],
    }
