"""What a view says in words: the same for the live view, the picture and plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from distlab.charts.batches import size_text
from distlab.folds import Folds
from distlab.text.bytes import bytes_text
from distlab.text.units import count_text, plain, rate_text, share_text

_MOST_REDUCTIONS = 4
_SIMULATED = "Simulated devices: they share the cores of one machine."
_BUSY = (
    "Busy: a step was handed to the device and not finished, waiting in collectives included. "
    "Fast steps are watched in short windows; gaps were not watched."
)
_NONE_YET = {
    "batches": "No batch was divided yet. Run the cell that trains, and look here.",
    "devices": "No device was watched yet. It begins when strategy.run(...) takes some steps.",
    "reductions": "Nothing was combined across replicas yet.",
    "placement": "No variable was placed yet.",
    "rates": "No rate yet: it needs two steps.",
}

Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Facts:
    """A run in words.

    Attributes:
      name: the run's name.
      status: `"waiting"`, `"live"`, or how the run ended.
      steps: how many steps and examples so far.
      panes: which charts the view has: only these are put in words.
      batch: which batch is shown, and how large it is.
      sizes: device name and examples of each replica, as text.
      busy: device name and the share of the watched time during which it was
        busy, as text; empty when nothing was watched.
      reductions: the largest kinds of reductions, one line each.
      placement: device name and the bytes of all variables on it.
      rates: what is counted per second, and how much of it.
      notes: what a reader has to know about these numbers.
    """

    name: str
    status: str
    steps: str
    panes: tuple[str, ...]
    batch: str
    sizes: Pairs
    busy: Pairs
    reductions: list[str]
    placement: Pairs
    rates: Pairs
    notes: list[str]

    def headline(self) -> tuple[str, Pairs]:
        """Returns a sentence and named amounts for the top of the view: its first chart's."""
        first = next(pane for pane in (*self.panes, "rates") if pane != "timeline")
        pairs = {"batches": self.sizes, "devices": self.busy, "placement": self.placement,
                 "rates": self.rates}.get(first, [])  # fmt: skip
        return self._sentence(first), pairs

    def lines(self) -> list[str]:
        """Returns all of it as lines of plain text."""
        lines = [f"distlab: {self.name}, {self.status}, {self.steps}"]
        for pane in self.panes:
            if pane == "timeline":  # a picture only
                continue
            # One row says both of a replica: how many examples it got, how busy it was.
            if pane != "devices" or "batches" not in self.panes:
                lines += [self._sentence(pane), *self._rows(pane)]
        return [*(line for line in lines if line), *self.notes]

    def _sentence(self, pane: str) -> str:
        if pane == "batches":
            return self.batch
        if pane == "reductions":
            if self.reductions:
                return ""
            return "" if len(self.panes) > 1 else _NONE_YET[pane]
        pairs, title = {
            "devices": (self.busy, "Busy share of the time watched"),
            "placement": (self.placement, "Bytes of all variables on each device"),
            "rates": (self.rates, "Per second"),
        }[pane]
        return title if pairs else _NONE_YET[pane]

    def _rows(self, pane: str) -> list[str]:
        if pane == "reductions":
            return self.reductions
        if pane == "batches":
            busy = [share for _, share in self.busy] if "devices" in self.panes else []
            told = zip_longest(self.sizes, busy[: len(self.sizes)])
            wide = max((len(name) for name, _ in self.sizes), default=0)
            return [
                f"  {name:<{wide}}  {size:<8}{f'  busy {share}' if share else ''}".rstrip()
                for (name, size), share in told
            ]
        pairs = {"devices": self.busy, "placement": self.placement, "rates": self.rates}[pane]
        wide = max((len(name) for name, _ in pairs), default=0)
        return [f"  {name:<{wide}}  {amount}" for name, amount in pairs]


def facts(folds: Folds, batch: dict[str, Any], panes: Sequence[str]) -> Facts:
    """Says a run in words.

    Args:
      folds: all that is known of it.
      batch: the batch to show, from `folds.batch`.
      panes: names of the view's charts.
    """
    header, steps = folds.columns("header"), folds.columns("steps")
    status = header["status"] or ("live" if steps["steps"] else "waiting")
    examples = f" with {count_text(steps['examples'])} examples" if steps["examples"] else ""
    devices = folds.columns("devices")
    return Facts(
        name=plain(header["name"]) or "no run yet",
        status=status,
        steps=f"{count_text(steps['steps'])} steps{examples}",
        panes=tuple(panes),
        batch=_batch(batch, folds.columns("batches")["count"]),
        sizes=_sizes(batch),
        busy=[
            (plain(name, 18), share_text(share))
            for name, share in zip(devices["device"], mean_shares(devices), strict=False)
        ],
        reductions=_reductions(folds.columns("reductions")),
        placement=_placement(folds.columns("placement")),
        rates=_rates(steps),
        notes=_notes(folds, header, panes),
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
        return _NONE_YET["batches"]
    return (
        f"Batch {count_text(batch['number'])} (of {count_text(count)} so far, from 0): "
        f"{count_text(sum(batch['size']))} examples over {len(batch['size'])} replicas"
    )


def _sizes(batch: dict[str, Any]) -> Pairs:
    if not batch:
        return []
    share = max(1, batch["nominal"], *batch["size"])
    return [
        (plain(name, 18), size_text(size, share) if size else "empty")
        for name, size in zip(batch["replica"], batch["size"], strict=True)
    ]


def reduction_rows(columns: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Returns kind, place, times and bytes of each kind of reduction, as text.

    Args:
      columns: those of `folds.Reductions`.
    """
    counts: dict[tuple[str, str, bool, int], int] = {}
    names = ("kind", "where", "at_least", "bytes", "count")
    for *key, count in zip(*(columns[name] for name in names), strict=True):
        kind, where, at_least, size = key
        # The same one on several lines of a program is one kind here.
        same = (kind, where, at_least, size)
        counts[same] = counts.get(same, 0) + count
    return [
        (
            plain(kind),
            plain(where),
            f"{'at least ' if at_least else ''}{count_text(count)}",
            bytes_text(size),
        )
        for (kind, where, at_least, size), count in counts.items()
    ]


def _reductions(columns: dict[str, Any]) -> list[str]:
    lines = [
        f"{kind} {where}: {times} times {size}"
        for kind, where, times, size in reduction_rows(columns)
    ]
    left = len(lines) - _MOST_REDUCTIONS
    more = [f"and {left} other kinds of reductions"] if left > 0 else []
    return lines[:_MOST_REDUCTIONS] + more


def _placement(columns: dict[str, Any]) -> Pairs:
    return [
        (plain(name, 18), bytes_text(int(size)))
        for name, size in zip(columns["device"], columns["device_bytes"], strict=True)
        if len(columns["name"])
    ]


def _rates(steps: dict[str, Any]) -> Pairs:
    told = (
        ("steps, lately", steps["rate"]),
        ("steps, on average", steps["mean_rate"]),
        ("examples, lately", steps["examples_rate"]),
    )
    return [(name, rate_text(rate)) for name, rate in told if rate is not None]


def _notes(folds: Folds, header: dict[str, Any], panes: Sequence[str]) -> list[str]:
    watched = {"devices", "timeline"} & set(panes) and folds.columns("devices")["watched"]
    notes = [_BUSY] if watched else []
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
