"""A view as text: the same for the live view, the picture and terminals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, TypeAlias

from distlab.events import Advice
from distlab.folds import (
    BatchColumns,
    BatchDetail,
    CaptureColumns,
    DeviceColumns,
    Folds,
    PlacementColumns,
    pace_of,
)
from distlab.folds.placement import is_server
from distlab.meshes.pictures import pictures_html
from distlab.page.facts.batch import missing_text, share_of
from distlab.page.facts.cards import lost_text, placement_facts, reduction_rows
from distlab.page.facts.metrics import loss_text
from distlab.page.facts.progress import halt_text, left_text, rate_texts, steps_text
from distlab.page.facts.run import ENDED_WITHOUT_CLOSING, ending_text, errors_text
from distlab.page.grids import batch_pictures, device_pictures, placement_pictures
from distlab.text.bytes import bytes_text
from distlab.text.units import count_text, counted, plain, share_text

_MOST_REDUCTIONS: Final = 4
_MOST_ADVICE: Final = 2
_SIMULATED: Final = "Simulated devices: they share the cores of one machine."
_BUSY: Final = (
    "Busy: share of the watched time in which a step was in flight on the device, waiting for "
    "other devices included. Fast steps are watched in short windows."
)
_NONE_YET: Final = {
    "batches": "No batches yet. Run the cell that trains, and look here.",
    "devices": "No devices watched yet. Watching begins after some steps.",
    "reductions": "No reductions yet.",
    "placement": "No variables yet.",
    "captured": "No profiles yet. A recording to a file takes one now and then.",
    "rates": "No rate yet: it needs two steps.",
}

_PICTURES: Final = {"loss", "timeline"}
"""Charts without a text of their own."""

Pairs: TypeAlias = list[tuple[str, str]]


@dataclass(frozen=True)
class Summary:
    """A run as the text of a view."""

    name: str
    status: str
    steps: str
    charts: tuple[str, ...]
    batch: str
    sizes: Pairs
    busy: Pairs
    reductions: list[str]
    placement: Pairs
    captured: Pairs
    rates: Pairs
    notes: list[str]
    grids: str  # The mesh as HTML, empty without one
    in_parts: bool  # Whether the batch lies in parts of a mesh, which are no devices

    def headline(self) -> tuple[str, Pairs]:
        """Returns the first chart's sentence and named amounts, for the top of the view."""
        first = next(chart for chart in (*self.charts, "rates") if chart not in _PICTURES)
        pairs = {"batches": self.sizes, "devices": self.busy, "placement": self.placement,
                 "captured": self.captured, "rates": self.rates}.get(first, [])  # fmt: skip
        return self._sentence(first), pairs

    def lines(self) -> list[str]:
        """Returns the whole summary as lines of plain text."""
        lines = [f"distlab: {self.name}, {self.status}, {self.steps}"]
        for chart in self.charts:
            if chart in _PICTURES:
                continue
            # One row has both of a replica: its examples and its busy share.
            if chart != "devices" or "batches" not in self.charts or self.in_parts:
                lines += [self._sentence(chart), *self._rows(chart)]
        return [*(line for line in lines if line), *self.notes]

    def _sentence(self, chart: str) -> str:
        if chart == "batches":
            return self.batch
        if chart == "reductions":
            if self.reductions:
                return ""
            return "" if len(self.charts) > 1 else _NONE_YET[chart]
        pairs, title = {
            "devices": (self.busy, "Busy share of the watched time"),
            "placement": (self.placement, f"Bytes of all variables on each {self._home()}"),
            "captured": (self.captured, "Shares of a capture, computing · waiting for others"),
            "rates": (self.rates, "Per second"),
        }[chart]
        return title if pairs else _NONE_YET[chart]

    def _home(self) -> str:
        """Returns what holds the variables: devices, parameter servers or both."""
        servers = [is_server(name) for name, _ in self.placement]
        return "device" if not any(servers) else "server" if all(servers) else "device or server"

    def _rows(self, chart: str) -> list[str]:
        if chart == "reductions":
            return self.reductions
        if chart == "batches":
            both = "devices" in self.charts and not self.in_parts
            busy = [share for _, share in self.busy] if both else []
            rows = zip_longest(self.sizes, busy[: len(self.sizes)])
            wide = max((len(name) for name, _ in self.sizes), default=0)
            return [
                f"  {name:<{wide}}  {size:<8}{f'  busy {share}' if share else ''}".rstrip()
                for (name, size), share in rows
            ]
        pairs = {"devices": self.busy, "placement": self.placement, "captured": self.captured,
                 "rates": self.rates}[chart]  # fmt: skip
        wide = max((len(name) for name, _ in pairs), default=0)
        return [f"  {name:<{wide}}  {amount}" for name, amount in pairs]


def summarize(
    folds: Folds,
    batch: BatchDetail | None,
    charts: Sequence[str],
    wanted: int | None = None,
    *,
    advice: Sequence[Advice] = (),
    live: bool = True,
    now_s: float | None = None,
) -> Summary:
    """Returns the text of a view, of a run that goes on `now_s` seconds after its begin."""
    header, steps = folds.columns("header"), folds.columns("steps")
    going_on = live and not header["status"]
    pace = pace_of(steps, now_s)
    left = left_text(pace) if going_on and steps["steps"] else ""
    progress = steps_text(steps), loss_text(folds.columns("metrics")), left
    return Summary(
        name=plain(header["name"]) or "no run yet",
        status=status_text(folds, live=live, now_s=now_s),
        steps="; ".join(filter(None, progress)),
        charts=tuple(charts),
        batch=_batch(batch, folds.columns("batches")),
        sizes=_sizes(batch),
        busy=_busy(folds.columns("devices")),
        reductions=_reductions(folds),
        placement=_placement(folds.columns("placement")),
        captured=_captured(folds.columns("captures")) if "captured" in charts else [],
        rates=rate_texts(steps, pace, live=going_on),
        notes=[
            *_advice(advice),
            *_notes(folds, batch if "batches" in charts else None, charts, wanted),
        ],
        grids=_grids(folds, batch, charts),
        in_parts=batch is not None and bool(batch["mesh"]),
    )


def status_text(folds: Folds, *, live: bool, now_s: float | None) -> str:
    """Returns how a run ended, or how it goes on."""
    status, steps = folds.columns("header")["status"], folds.columns("steps")
    if status or not live:
        return status or ENDED_WITHOUT_CLOSING
    return halt_text(pace_of(steps, now_s)) or ("live" if steps["steps"] else "waiting")


def _grids(folds: Folds, batch: BatchDetail | None, charts: Sequence[str]) -> str:
    pictures = [
        *(batch_pictures(batch) if "batches" in charts else ()),
        *(device_pictures(folds.columns("devices")) if "devices" in charts else ()),
        *(placement_pictures(folds.columns("placement")) if "placement" in charts else ()),
    ]
    return pictures_html(pictures) if pictures else ""


def _batch(batch: BatchDetail | None, batches: BatchColumns) -> str:
    if batch is None:
        return _NONE_YET["batches"]
    names = batches["datasets"]
    of = f"; {plain(names[batch['dataset']])}" if len(names) > 1 else ""
    over = counted(len(batch["size"]), "part" if batch["mesh"] else "replica")
    return (
        f"Batch {count_text(batch['number'])} (of {count_text(batches['count'])} so far, from 0): "
        f"{counted(sum(batch['size']), 'example')} over {over}"
        f"{of}"
    )


def _sizes(batch: BatchDetail | None) -> Pairs:
    if batch is None:
        return []
    return [
        (plain(name, 18), share_of(size, batch["nominal"]))
        for name, size in zip(batch["replica"], batch["size"], strict=True)
    ]


def _busy(devices: DeviceColumns) -> Pairs:
    return [
        (plain(name, 18), share_text(share))
        for name, share in zip(devices["device"], devices["mean"], strict=False)
    ]


def _reductions(folds: Folds) -> list[str]:
    lines = [
        f"{row.kind} {row.where}: {row.times} times {row.size}"
        for row in reduction_rows(folds.columns("reductions"))
    ]
    left = len(lines) - _MOST_REDUCTIONS
    more = [f"and {left} other kinds of reductions"] if left > 0 else []
    return lines[:_MOST_REDUCTIONS] + more


def _placement(placement: PlacementColumns) -> Pairs:
    if not placement["name"]:
        return []
    return [
        (plain(name, 18), bytes_text(int(size)))
        for name, size in zip(placement["device"], placement["device_bytes"], strict=True)
    ]


def _variables(placement: PlacementColumns) -> str:
    facts = placement_facts(placement)
    return f"Variables: {facts['variable_bytes']}." if facts["divides_variables"] else ""


def _captured(captures: CaptureColumns) -> Pairs:
    rows = zip(captures["device"], captures["compute"], captures["waiting"], strict=True)
    return [
        (plain(name, 18), f"{share_text(computing)} · {share_text(waiting)}")
        for name, computing, waiting in rows
    ]


def _advice(advice: Sequence[Advice]) -> list[str]:
    left = len(advice) - _MOST_ADVICE
    more = [f"And {counted(left, 'more finding')}."] if left > 0 else []
    shown = [f"Advice: {one.text} {one.remedy}" for one in advice[:_MOST_ADVICE]]
    return [*shown, *more]


def _notes(
    folds: Folds, batch: BatchDetail | None, charts: Sequence[str], wanted: int | None
) -> list[str]:
    header = folds.columns("header")
    watched = {"devices", "timeline"} & set(charts) and folds.columns("devices")["watched"]
    notes = [
        missing_text(wanted, batch, folds.columns("batches")["count"]),
        _BUSY if watched else "",
        _variables(folds.columns("placement")) if "placement" in charts else "",
        _SIMULATED if header["simulated"] else "",
        ending_text(header),
        errors_text(header),
        lost_text(folds.lost + header["not_recorded"]),
    ]
    return [note for note in notes if note]
