"""What the timeline draws in its lanes: cells of time, or single steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from distlab.charts.theme import FAINT, colour
from distlab.folds import TimelineColumns

INPUT, PYTHON, FIRST_DEVICE = 0, 1, 2
"""The lanes from the top on; see `places` for where they lie."""

_FILLED = 0.72

MOST_SPANS = 4_000
_MOST_WAITS = 300
_MOST_WATCHED = 1_000
_MOST_NUMBERS = 600
_MOST_CODES = 20_000

LEVELS = 64
"""Codes of a lane's sort: 0 for what is not known, then `LEVELS - 1` shares from 0 to 1."""

SORT_COLOURS = (colour(1), colour(5), colour(0), "#004f7d", colour(3))
"""Of single spans: waiting for a batch, a call of `run`, a step (even, odd), a transfer."""

WAIT, CALL, EVEN, ODD, TRANSFER = range(5)

Floats = npt.NDArray[np.float64]
Range = tuple[float, float]
Data = dict[str, Any]


class Slice(NamedTuple):
    """Neighbouring cells.

    Attributes:
      columns: of `folds.Timeline`.
      first: the first cell.
      end: the cell after the last one.
    """

    columns: TimelineColumns
    first: int
    end: int


def places(lanes: int) -> tuple[Floats, Floats]:
    """Returns each lane's middle and the height that it fills; devices are 1 apart, from 0 down.

    The first two lanes stay high enough for their labels however many devices there are.
    """
    tall = max(1.0, (lanes - FIRST_DEVICE) / 12)
    middles = FIRST_DEVICE - np.arange(lanes, dtype=np.float64)
    middles[:FIRST_DEVICE] = 0.5 + tall * np.array([1.5, 0.5])[:lanes]
    heights = np.full(lanes, _FILLED)
    heights[:FIRST_DEVICE] *= tall
    return middles, heights


def palette() -> list[str]:
    """Returns the colours of all codes: a faint track for 0 %, and the lane's colour for 100 %."""
    faint = _rgb(FAINT)
    colours = []
    for full in (SORT_COLOURS[WAIT], SORT_COLOURS[CALL], SORT_COLOURS[EVEN]):
        shares = np.linspace(0, 1, LEVELS - 1)[:, None]
        mixed = np.where(shares > 0, _rgb(full), faint)
        alphas = np.where(shares > 0, 0.25 + 0.75 * shares, 0.16)
        rows = np.round(np.hstack([mixed, 255 * alphas])).astype(int)
        colours += ["#00000000", *("#" + bytes(row.tolist()).hex() for row in rows)]
    return colours


def _rgb(text: str) -> npt.NDArray[np.int64]:
    return np.array([int(text[place : place + 2], 16) for place in (1, 3, 5)])


def codes(columns: TimelineColumns) -> npt.NDArray[np.uint8]:
    """Returns the code of each lane's cells, `(lanes, cells)`."""
    shares = np.vstack([columns["waited"], columns["calls"], np.asarray(columns["busy"]).T])
    levels = np.ceil(np.nan_to_num(np.clip(shares, 0, 1)) * (LEVELS - 2)) + 1
    levels = np.where(np.isnan(shares), 0, levels)
    sorts = np.minimum(np.arange(len(shares)), FIRST_DEVICE)
    coded: npt.NDArray[np.uint8] = (levels + sorts[:, None] * LEVELS).astype(np.uint8)
    return coded


def merged(columns: TimelineColumns) -> TimelineColumns:
    """Returns columns with fewer and wider cells, when there are too many for so many lanes."""
    lanes = np.asarray(columns["busy"]).shape[1] + FIRST_DEVICE
    while len(columns["steps"]) * lanes > _MOST_CODES and len(columns["steps"]) > 1:
        watched = _pairs(np.asarray(columns["watched"]))
        busy = _pairs(np.nan_to_num(columns["busy"]) * np.asarray(columns["watched"])[:, None])
        seen = watched > 0
        columns = {
            **columns,
            "cell_s": 2 * columns["cell_s"],
            "busy": np.where(seen[:, None], busy / np.where(seen, watched, 1)[:, None], np.nan),
            "watched": watched / 2,
            "calls": _pairs(columns["calls"]) / 2,
            "waited": _pairs(columns["waited"]) / 2,
            "steps": _pairs(columns["steps"]),
        }
    return columns


def _pairs(amounts: Any) -> Any:
    even = np.concatenate([amounts, np.zeros_like(amounts[:1])]) if len(amounts) % 2 else amounts
    return even[::2] + even[1::2]


def cut(piece: Slice, inner: Range) -> Iterator[tuple[Slice, bool]]:
    """Cuts cells at the cells' borders next to a range; says which of them lie inside of it."""
    columns, first, end = piece
    start, width = columns["cell_start_s"], columns["cell_s"]
    borders = [np.clip(np.round((at - start) / width), first, end) for at in inner]
    low, high = (int(border) for border in borders)
    for begin, stop, inside in ((first, low, False), (low, high, True), (high, end, False)):
        if stop > begin:
            yield Slice(columns, begin, stop), inside


def image_rows(pieces: list[Slice]) -> Data:
    """Returns a picture for each lane of each piece, as the source of an `Image` wants them."""
    names = ("image", "x", "y", "dw", "dh", "steps")
    rows: Data = {name: [] for name in names}
    for columns, first, end in pieces:
        coded = codes(columns)[:, first:end]
        steps = np.asarray(columns["steps"][first:end], np.float64)
        middles, heights = places(len(coded))
        for lane, line in enumerate(coded):
            rows["image"].append(line[None, :])
            rows["x"].append(columns["cell_start_s"] + first * columns["cell_s"])
            rows["y"].append(middles[lane] - heights[lane] / 2)
            rows["dh"].append(heights[lane])
            rows["dw"].append((end - first) * columns["cell_s"])
            rows["steps"].append(steps if lane == PYTHON else steps[:0])
    return rows


def chosen_steps(columns: TimelineColumns, visible: Range | None) -> slice:
    """Returns which steps are drawn one by one: those in sight and as much again.

    Args:
      columns: of `folds.Timeline`.
      visible: what is in sight; None for all of the run, of which it is the newest.

    Returns:
      A slice of the columns' steps; empty when too many are in sight.
    """
    begins = np.asarray(columns["begin_s"])
    most = MOST_SPANS // (np.asarray(columns["ready_s"]).shape[1] + 1)
    if visible is None:
        return slice(max(0, len(begins) - most), len(begins))
    low, high = visible
    if low < columns["exact_from_s"]:
        return slice(0, 0)  # some of those in sight are not there
    ends = np.fmax(columns["called_s"], np.fmax.reduce(columns["ready_s"], axis=1, initial=-1.0))
    for margin in ((high - low) / 2, 0.0):
        # With one more on each side, so that all that is in sight lies between them.
        first = int(np.argmax(ends >= low - margin)) if (ends >= low - margin).any() else len(ends)
        first = min(first, int(np.searchsorted(begins, low - margin)))
        last = int(np.searchsorted(begins, high + margin, side="right"))
        if 0 < min(len(begins), last + 1) - max(0, first - 1) <= most:
            return slice(max(0, first - 1), min(len(begins), last + 1))
    return slice(0, 0)


def range_of(columns: TimelineColumns, chosen: slice) -> Range:
    """Returns the time in which the chosen steps are all there were."""
    begins = columns["begin_s"]
    if chosen.start >= chosen.stop:
        return (np.inf, np.inf)
    complete = chosen.start == 0 and columns["exact_from_s"] == 0
    last = chosen.stop == len(begins)
    return (
        columns["cell_start_s"] if complete else float(begins[chosen.start]),
        float(columns["now_s"] if last else begins[chosen.stop]),
    )


def span_rows(columns: TimelineColumns, chosen: slice, drawn: Range) -> Data:
    """Returns a row for each span: calls, steps on devices, and waiting for batches."""
    steps = np.asarray(columns["step"])[chosen]
    from_s, ready_s = (np.asarray(columns[name])[chosen] for name in ("from_s", "ready_s"))
    place, row = np.nonzero(np.isfinite(ready_s))
    waits, batches = np.asarray(columns["waits"]), np.asarray(columns["batch"])
    near = np.flatnonzero((waits[:, 2] >= drawn[0]) & (waits[:, 0] <= drawn[1]))[-_MOST_WAITS:]
    waits, batches = waits[near], batches[near]
    many = len(waits)
    lanes = np.concatenate(
        [np.full(len(steps), PYTHON), row + FIRST_DEVICE, np.full(2 * many, INPUT)]
    )
    return {
        **_at(lanes, from_s.shape[1]),
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
                *(np.full(many, sort) for sort in (WAIT, TRANSFER)),
            ]
        ).astype(np.uint8),
        "number": np.concatenate([steps, steps[place], batches, batches]).astype(np.float64),
    }


def watched_rows(columns: TimelineColumns, drawn: Range) -> Data:
    """Returns where each lane was watched, as far as single steps are drawn."""
    low, high = drawn
    devices = np.asarray(columns["ready_s"]).shape[1]
    spans = np.clip(_known(columns), low, high)
    spans = spans[spans[:, 1] > spans[:, 0]][-max(1, _MOST_WATCHED // max(1, devices)) :]
    always = np.array([[low, high]] * 2 if low < high else []).reshape(-1, 2)
    every = np.tile(np.arange(devices), len(spans)) + FIRST_DEVICE
    return {
        **_at(np.concatenate([np.arange(len(always)), every]), devices),
        "begin": np.concatenate([always[:, 0], np.repeat(spans[:, 0], devices)]),
        "end": np.concatenate([always[:, 1], np.repeat(spans[:, 1], devices)]),
    }


def _at(lanes: Any, devices: int) -> Data:
    """Where things in these lanes lie, and how high they are."""
    middles, heights = places(devices + FIRST_DEVICE)
    return {"y": middles[lanes], "height": heights[lanes]}


def _known(columns: TimelineColumns) -> Floats:
    """Watched time without what follows calls of which nobody saw the end.

    A device that was watched is idle where no step is known to be in flight, unless
    a step was called whose end was not seen. Once a later step is ready, it is done.
    """
    begins = np.asarray(columns["begin_s"])
    seen = np.isfinite(columns["ready_s"]).any(axis=1)
    next_seen = np.minimum.accumulate(np.where(seen, begins, np.inf)[::-1])[::-1]
    holes = np.stack([begins, next_seen], axis=1)[~seen]
    first = np.append(True, holes[1:, 1] != holes[:-1, 1])[: len(holes)]
    holes = holes[first]  # each from its first call
    spans = np.asarray(columns["watched_spans"]).reshape(-1, 2)
    borders = np.concatenate([spans.ravel(), holes.ravel()])
    changes = np.concatenate([np.tile([1, -1], len(spans)), np.tile([-9, 9], len(holes))])
    order = np.lexsort((changes, borders))
    borders, states = borders[order], np.cumsum(changes[order])
    inside = np.flatnonzero(states == 1)
    return np.stack([borders[inside], borders[np.minimum(inside + 1, len(borders) - 1)]], axis=1)


def number_rows(spans: Data) -> Data:
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
