"""Cells of time in the timeline's lanes: an image for each lane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from distlab.charts._lane_spans import (
    CALL,
    COLOURS,
    EVEN,
    FIRST_DEVICE,
    PYTHON,
    WAIT,
    Range,
    lane_places,
)
from distlab.charts.theme import shades
from distlab.folds import TimelineColumns
from distlab.folds.arrays import Floats
from distlab.folds.devices import computing

LEVELS = 64
"""Codes of one kind of lane: 0 for unknown, then `LEVELS - 1` shares from 0 to 1."""

_MOST_CODES = 20_000

N = TypeVar("N", np.float64, np.int64)


class Slice(NamedTuple):
    """Neighbouring cells."""

    columns: TimelineColumns
    first: int
    end: int


class ImageRows(TypedDict):
    """One row for each lane of each slice: an image, its corner and size, and its steps."""

    image: list[npt.NDArray[np.uint8]]
    x: list[float]
    y: list[float]
    dw: list[float]
    dh: list[float]
    steps: list[Floats]


def palette() -> list[str]:
    """Returns the colours of all codes: a faint track for 0 %, and the lane's colour for 100 %."""
    kinds = (COLOURS[WAIT], COLOURS[CALL], COLOURS[EVEN])
    return [code for full in kinds for code in ("#00000000", *shades(full, LEVELS - 1))]


def merged(columns: TimelineColumns) -> TimelineColumns:
    """Returns columns with fewer and wider cells, when so many lanes have too many."""
    lanes = columns["busy"].shape[1] + FIRST_DEVICE
    while len(columns["steps"]) * lanes > _MOST_CODES and len(columns["steps"]) > 1:
        watched = _pairs(columns["watched"])
        busy = _pairs(np.nan_to_num(columns["busy"]) * columns["watched"][:, None])
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


def _pairs(amounts: npt.NDArray[N]) -> npt.NDArray[N]:
    even = np.concatenate([amounts, np.zeros_like(amounts[:1])]) if len(amounts) % 2 else amounts
    return even[::2] + even[1::2]


def cut(cells: Slice, inner: Range) -> Iterator[tuple[Slice, bool]]:
    """Yields the parts of a slice before, inside and after a range, and whether each is inside.

    The cells' edges next to the range divide them.
    """
    columns, first, end = cells
    start, width = columns["cell_start_s"], columns["cell_s"]
    edges = [np.clip(np.round((at - start) / width), first, end) for at in inner]
    low, high = (int(edge) for edge in edges)
    for begin, stop, inside in ((first, low, False), (low, high, True), (high, end, False)):
        if stop > begin:
            yield Slice(columns, begin, stop), inside


def image_rows(slices: Sequence[Slice]) -> ImageRows:
    """Returns an image for each lane of each slice."""
    rows: ImageRows = {"image": [], "x": [], "y": [], "dw": [], "dh": [], "steps": []}
    for columns, first, end in slices:
        coded = _codes(columns)[:, first:end]
        steps = columns["steps"][first:end].astype(np.float64)
        middles, heights = lane_places(len(coded))
        for lane, line in enumerate(coded):
            rows["image"].append(line[None, :])
            rows["x"].append(columns["cell_start_s"] + first * columns["cell_s"])
            rows["y"].append(middles[lane] - heights[lane] / 2)
            rows["dh"].append(heights[lane])
            rows["dw"].append((end - first) * columns["cell_s"])
            rows["steps"].append(steps if lane == PYTHON else steps[:0])
    return rows


def _codes(columns: TimelineColumns) -> npt.NDArray[np.uint8]:
    """Returns the code of each lane's cells, `(lanes, cells)`."""
    devices = computing(columns["busy"], columns["computes"])
    shares = np.vstack([columns["waited"], columns["calls"], devices.T])
    levels = np.ceil(np.nan_to_num(np.clip(shares, 0, 1)) * (LEVELS - 2)) + 1
    levels = np.where(np.isnan(shares), 0, levels)
    kinds = np.minimum(np.arange(len(shares)), FIRST_DEVICE)
    coded: npt.NDArray[np.uint8] = (levels + kinds[:, None] * LEVELS).astype(np.uint8)
    return coded
