"""The timeline's lanes and their single spans: calls, steps on devices, and batches."""

from __future__ import annotations

from typing import TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

from distlab.charts.theme import colour
from distlab.folds import TimelineColumns
from distlab.folds.arrays import Floats, Ints

INPUT, PYTHON, FIRST_DEVICE = 0, 1, 2
"""Numbers of the lanes, from the top; devices follow `FIRST_DEVICE`."""

WAIT, CALL, EVEN, ODD, TRANSFER = range(5)
"""Activities: waiting for a batch, a call of `run`, a step (even, odd), a transfer."""

COLOURS = (colour(1), colour(5), colour(0), "#004f7d", colour(3))
"""Colours of the activities."""

_FILLED = 0.72

Range: TypeAlias = tuple[float, float]
"""Begin and end in seconds since the run began."""

_MOST_SPANS = 4_000
_MOST_WAITS = 300
_MOST_WATCHED = 1_000
_MOST_NUMBERS = 600


def lane_places(lanes: int) -> tuple[Floats, Floats]:
    """Returns each lane's middle and height; middles of devices are 1 apart, from 0 down.

    The first two lanes grow with the number of devices: their labels need the room.
    """
    tall = max(1.0, (lanes - FIRST_DEVICE) / 12)
    middles = FIRST_DEVICE - np.arange(lanes, dtype=np.float64)
    middles[:FIRST_DEVICE] = 0.5 + tall * np.array([1.5, 0.5])[:lanes]
    heights = np.full(lanes, _FILLED)
    heights[:FIRST_DEVICE] *= tall
    return middles, heights


class WatchedRows(TypedDict):
    """One row for each span in which a lane was watched."""

    y: Floats
    height: Floats
    begin: Floats
    end: Floats


class SpanRows(WatchedRows):
    """One row for each single span: also its activity, and the number of its step or batch."""

    sort: npt.NDArray[np.uint8]
    number: Floats


class NumberRows(TypedDict):
    """One row for each number of a step that is written into its span."""

    x: Floats
    y: Floats
    text: list[str]
    room: Floats


def chosen_steps(columns: TimelineColumns, visible: Range | None) -> slice:
    """Returns which steps are drawn one by one: those in sight and as many around them."""
    begins = columns["begin_s"]
    most = _MOST_SPANS // (columns["ready_s"].shape[1] + 1)
    if visible is None:
        return slice(max(0, len(begins) - most), len(begins))
    low, high = visible
    if low < columns["exact_from_s"]:
        return slice(0, 0)  # some of those in sight are missing
    ends = np.fmax(columns["called_s"], np.fmax.reduce(columns["ready_s"], axis=1, initial=-1.0))
    for margin in ((high - low) / 2, 0.0):
        # With one more step on each side, every step in sight lies between two drawn ones.
        first = int(np.argmax(ends >= low - margin)) if (ends >= low - margin).any() else len(ends)
        first = min(first, int(np.searchsorted(begins, low - margin)))
        last = int(np.searchsorted(begins, high + margin, side="right"))
        if 0 < min(len(begins), last + 1) - max(0, first - 1) <= most:
            return slice(max(0, first - 1), min(len(begins), last + 1))
    return slice(0, 0)


def complete_range(columns: TimelineColumns, chosen: slice) -> Range:
    """Returns the time in which no step is missing among the chosen ones."""
    begins = columns["begin_s"]
    if chosen.start >= chosen.stop:
        return (np.inf, np.inf)
    complete = chosen.start == 0 and columns["exact_from_s"] == 0
    last = chosen.stop == len(begins)
    return (
        columns["cell_start_s"] if complete else float(begins[chosen.start]),
        float(columns["now_s"] if last else begins[chosen.stop]),
    )


def span_rows(columns: TimelineColumns, chosen: slice, drawn: Range) -> SpanRows:
    """Returns a row for each span: calls, steps on devices, and waiting for batches."""
    steps, from_s, ready_s = (
        columns["step"][chosen],
        columns["from_s"][chosen],
        columns["ready_s"][chosen],
    )
    place, row = np.nonzero(np.isfinite(ready_s))
    waits, batches = columns["waits"], columns["batch"]
    near = np.flatnonzero((waits[:, 2] >= drawn[0]) & (waits[:, 0] <= drawn[1]))[-_MOST_WAITS:]
    waits, batches = waits[near], batches[near]
    many = len(waits)
    lanes = np.concatenate(
        [np.full(len(steps), PYTHON), row + FIRST_DEVICE, np.full(2 * many, INPUT)]
    )
    y, height = _places_of(lanes, from_s.shape[1])
    return {
        "y": y,
        "height": height,
        "begin": np.concatenate(
            [columns["begin_s"][chosen], from_s[place, row], waits[:, 0], waits[:, 1]]
        ),
        "end": np.concatenate(
            [columns["called_s"][chosen], ready_s[place, row], waits[:, 1], waits[:, 2]]
        ),
        "sort": np.concatenate(
            [
                np.full(len(steps), CALL),
                np.where(steps[place] % 2, ODD, EVEN),
                np.full(many, WAIT),
                np.full(many, TRANSFER),
            ]
        ).astype(np.uint8),
        "number": np.concatenate([steps, steps[place], batches, batches]).astype(np.float64),
    }


def watched_rows(columns: TimelineColumns, drawn: Range) -> WatchedRows:
    """Returns when each lane was watched, in the range of single steps."""
    low, high = drawn
    devices = columns["ready_s"].shape[1]
    spans = np.clip(_known_spans(columns), low, high)
    spans = spans[spans[:, 1] > spans[:, 0]][-max(1, _MOST_WATCHED // max(1, devices)) :]
    always = np.array([[low, high]] * 2 if low < high else []).reshape(-1, 2)
    every = np.tile(np.arange(devices), len(spans)) + FIRST_DEVICE
    y, height = _places_of(np.concatenate([np.arange(len(always)), every]), devices)
    return {
        "y": y,
        "height": height,
        "begin": np.concatenate([always[:, 0], np.repeat(spans[:, 0], devices)]),
        "end": np.concatenate([always[:, 1], np.repeat(spans[:, 1], devices)]),
    }


def number_rows(spans: SpanRows) -> NumberRows:
    """Returns the steps' numbers to write into their spans, when there are few of them."""
    steps = np.flatnonzero(np.isin(spans["sort"], (EVEN, ODD)))
    lengths = (spans["end"] - spans["begin"])[steps]
    typical = float(np.median(lengths)) if len(steps) else 0.0
    steps = steps[lengths >= 0.6 * typical] if len(steps) <= _MOST_NUMBERS else steps[:0]
    return {
        "x": spans["begin"][steps],
        "y": spans["y"][steps],
        "text": [f"{number:.0f}" for number in spans["number"][steps]],
        "room": np.full(len(steps), 0.6 * typical),
    }


def _places_of(lanes: Ints, devices: int) -> tuple[Floats, Floats]:
    """Returns the middles and heights of spans in these lanes."""
    middles, heights = lane_places(devices + FIRST_DEVICE)
    return middles[lanes], heights[lanes]


def _known_spans(columns: TimelineColumns) -> Floats:
    """Returns the watched time without what follows calls whose end nothing recorded.

    A watched device is idle while no known step is in flight, unless a step was called
    whose end was not recorded. That step is done when a later one is ready.
    """
    begins = columns["begin_s"]
    seen = np.isfinite(columns["ready_s"]).any(axis=1)
    next_seen = np.minimum.accumulate(np.where(seen, begins, np.inf)[::-1])[::-1]
    holes = np.stack([begins, next_seen], axis=1)[~seen]
    first = np.append(True, holes[1:, 1] != holes[:-1, 1])[: len(holes)]
    holes = holes[first]  # each from its first call
    spans = columns["watched_spans"]
    edges = np.concatenate([spans.ravel(), holes.ravel()])
    changes = np.concatenate([np.tile([1, -1], len(spans)), np.tile([-9, 9], len(holes))])
    order = np.lexsort((changes, edges))
    edges, states = edges[order], np.cumsum(changes[order])
    inside = np.flatnonzero(states == 1)
    return np.stack([edges[inside], edges[np.minimum(inside + 1, len(edges) - 1)]], axis=1)
