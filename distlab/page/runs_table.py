"""The table of runs as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from distlab.text.bytes import bytes_text
from distlab.text.metric_names import by_interest
from distlab.text.units import duration_text, of_total, plain, rate_text, value_text

NAMES: Final = (
    *("run", "started", "status", "steps", "rate", "took", "replicas", "size", "metrics", "key"),
)
_MOST_METRICS: Final = 3


@dataclass(frozen=True)
class RunSummary:
    """A run in a folder of runs, by its path in it; without more, one that can't be read."""

    key: str  # "." for the folder itself
    bytes: int
    name: str = ""
    status: str = "can't be read"
    started: float = 0.0  # seconds since 1970
    seconds: float = 0.0
    steps: int = 0
    rate: float | None = None  # steps per second, the mean
    total_steps: int | None = None
    replicas: Sequence[int] = ()  # of each strategy
    metrics: Mapping[str, float] = field(default_factory=dict)  # the last values
    gaps: Sequence[str] = ()  # lost events, missing files
    fault: str = ""  # why it can't be read


def run_rows(summaries: Iterable[RunSummary]) -> dict[str, list[str]]:
    """Returns the table's texts by column."""
    rows = [_row(summary) for summary in summaries]
    return {name: [row[name] for row in rows] for name in NAMES}


def _row(summary: RunSummary) -> dict[str, str]:
    metrics = (
        f"{name} {value_text(summary.metrics[name])}"
        for name in by_interest(summary.metrics)[:_MOST_METRICS]
    )
    row = {
        **dict.fromkeys(NAMES, "\u2013"),
        "run": plain(summary.key if summary.key != "." else summary.name, 80),
        "status": "live" if summary.status == "running" else summary.status,
        "size": bytes_text(summary.bytes),
        "metrics": plain(summary.fault, 300) or plain(", ".join([*summary.gaps, *metrics]), 120),
        "key": summary.key,
    }
    if summary.fault:
        return row
    started = datetime.fromtimestamp(summary.started, UTC).astimezone()
    return row | {
        "started": f"{started:%Y-%m-%d %H:%M:%S}",
        "steps": of_total(summary.steps, summary.total_steps),
        "rate": "\u2013" if summary.rate is None else rate_text(summary.rate),
        "took": duration_text(summary.seconds),
        "replicas": str(max(summary.replicas, default=0)),
    }
