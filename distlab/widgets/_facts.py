"""What a view says in words: the same for the live view, the picture and plain text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.charts.batches import size_text
from distlab.charts.units import bytes_text, count_text, plain, share_text
from distlab.folds import Folds

_MOST_REDUCTIONS = 4
_SIMULATED = "Simulated devices: they share the cores of one machine."
_BUSY = (
    "Busy: a step was handed to the device and not finished, waiting in collectives included. "
    "Fast steps are watched in short windows; gaps were not watched."
)
_WAITING = "No batch was divided yet. Run the cell that trains, and look here."


@dataclass(frozen=True)
class Facts:
    """A run in words.

    Attributes:
      name: the run's name.
      status: `"waiting"`, `"live"`, or how the run ended.
      steps: how many steps and examples so far.
      batch: which batch is shown, and how large it is.
      sizes: device name and examples of each replica, as text.
      busy: share of the watched time during which each replica's device was
        busy, as text; empty when nothing was watched.
      reductions: the largest kinds of reductions, one line each.
      notes: what a reader has to know about these numbers.
    """

    name: str
    status: str
    steps: str
    batch: str
    sizes: list[tuple[str, str]]
    busy: list[str]
    reductions: list[str]
    notes: list[str]

    def lines(self) -> list[str]:
        """Returns all of it as lines of plain text."""
        lines = [f"distlab: {self.name}, {self.status}, {self.steps}", self.batch]
        wide = max((len(name) for name, _ in self.sizes), default=0)
        for row, (name, size) in enumerate(self.sizes):
            busy = f"  busy {self.busy[row]}" if row < len(self.busy) else ""
            lines.append(f"  {name:<{wide}}  {size:<8}{busy}".rstrip())
        return [*lines, *self.reductions, *self.notes]


def facts(folds: Folds, batch: dict[str, Any]) -> Facts:
    """Says a run in words.

    Args:
      folds: all that is known of it.
      batch: the batch to show, from `folds.batch`.
    """
    header, steps = folds.columns("header"), folds.columns("steps")
    status = header["status"] or ("live" if steps["steps"] else "waiting")
    examples = f" with {count_text(steps['examples'])} examples" if steps["examples"] else ""
    return Facts(
        name=plain(header["name"]) or "no run yet",
        status=status,
        steps=f"{count_text(steps['steps'])} steps{examples}",
        batch=_batch(batch, folds.columns("batches")["count"]),
        sizes=_sizes(batch),
        busy=[share_text(share) for share in mean_shares(folds.columns("devices"))],
        reductions=_reductions(folds.columns("reductions")),
        notes=_notes(folds, header),
    )


def mean_shares(devices: dict[str, Any]) -> list[float]:
    """Returns each device's busy share of all the time it was watched.

    Args:
      devices: columns of `folds.Devices`.
    """
    lengths = devices["end_s"] - devices["start_s"]
    if not lengths.sum() > 0:
        return []
    shares: list[float] = np.average(devices["busy"], axis=0, weights=lengths).tolist()
    return shares


def _batch(batch: dict[str, Any], count: int) -> str:
    if not batch:
        return _WAITING
    return (
        f"Batch {count_text(batch['number'])} (of {count_text(count)} so far, from 0): "
        f"{count_text(sum(batch['size']))} examples over {len(batch['size'])} replicas"
    )


def _sizes(batch: dict[str, Any]) -> list[tuple[str, str]]:
    if not batch:
        return []
    share = max(1, batch["nominal"], *batch["size"])
    return [
        (plain(name, 18), size_text(size, share) if size else "empty")
        for name, size in zip(batch["replica"], batch["size"], strict=True)
    ]


def _reductions(columns: dict[str, Any]) -> list[str]:
    counts: dict[tuple[str, str, bool, int], int] = {}
    names = ("kind", "where", "at_least", "bytes", "count")
    for *key, count in zip(*(columns[name] for name in names), strict=True):
        kind, where, at_least, size = key
        # The same one on several lines of a program is one kind here.
        same = (kind, where, at_least, size)
        counts[same] = counts.get(same, 0) + count
    lines = [
        f"{plain(kind)} {plain(where)}: {'at least ' if at_least else ''}"
        f"{count_text(count)} times {bytes_text(size)}"
        for (kind, where, at_least, size), count in counts.items()
    ]
    left = len(lines) - _MOST_REDUCTIONS
    more = [f"and {left} other kinds of reductions"] if left > 0 else []
    return lines[:_MOST_REDUCTIONS] + more


def _notes(folds: Folds, header: dict[str, Any]) -> list[str]:
    notes = [_BUSY] if folds.columns("devices")["watched"] else []
    if header["simulated"]:
        notes.append(_SIMULATED)
    if header["message"]:
        notes.append(f"It ended with: {plain(header['message'], 200)}")
    if header["error_count"]:
        notes.append(
            f"{header['error_count']} errors; the last: {plain(header['errors'][-1], 200)}"
        )
    lost = folds.lost + header["not_recorded"]
    if lost:
        notes.append(f"{count_text(lost)} events were lost and are in no number here.")
    return notes
