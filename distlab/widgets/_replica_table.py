"""The table of replicas in a view's picture: their examples and their busy shares."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from distlab.charts.devices import resample
from distlab.charts.sheet import Grid, as_pictures, sheet
from distlab.charts.theme import colour
from distlab.folds import BatchDetail, DeviceColumns
from distlab.text.png import data_uri, enlarge
from distlab.widgets._heat_strips import strips
from distlab.widgets._static_html import MOST_ROWS, image, table
from distlab.widgets._summary import Summary

_MOST_TILES: Final = 48
_TILES_IN_A_LINE: Final = 8
_TILE_PIXELS: Final = 24
_CELLS: Final = 80
_STRIP_WIDTH: Final = 160


def replica_table(batch: BatchDetail | None, devices: DeviceColumns, summary: Summary) -> str:
    """Returns a row for each replica, with the columns that the view shows."""
    if summary.in_parts and {"batches", "devices"} <= {*summary.charts}:
        one, other = (replace(summary, charts=(chart,)) for chart in ("batches", "devices"))
        return replica_table(batch, devices, one) + replica_table(None, devices, other)
    sizes = summary.sizes if "batches" in summary.charts else []
    busy = summary.busy if "devices" in summary.charts else []
    names = [name for name, _ in sizes or busy]
    if not names:
        return ""
    heading = "Replica on" if not summary.in_parts else "Part" if sizes else "Device"
    columns: dict[str, list[str]] = {heading: [escape(name) for name in names]}
    if sizes and batch is not None:
        columns["Examples"] = _tiles(batch)
        columns["Count"] = [escape(size) for _, size in sizes]
    if busy:
        columns["Busy over time"] = _busy_strips(devices)
        columns["Busy"] = [escape(share) for _, share in busy]
    marks = [colour(row) for row in range(len(names))]
    return table(columns, "replicas", marks)


def _tiles(batch: BatchDetail) -> list[str]:
    """Returns each replica's examples as one image, or a note that there is none."""
    if not batch["form"]:
        return ["no preview" if size else "" for size in batch["size"]]
    ends = np.cumsum(batch["size"])[:MOST_ROWS]
    pixels = batch["pixels"]
    pictures = as_pictures(pixels) if batch["form"] == "numbers" else np.asarray(pixels)
    return [
        _replica_tiles(pictures[end - size : end], batch["label"][end - size : end])
        for size, end in zip(batch["size"], ends.tolist(), strict=False)
    ]


def _replica_tiles(pictures: npt.NDArray[Any], labels: list[str]) -> str:
    if not len(pictures):
        return ""
    shown = pictures[:_MOST_TILES]
    columns = min(len(shown), _TILES_IN_A_LINE)
    grid = Grid(columns, -(-len(shown) // columns), 1)
    places = np.arange(len(shown))
    flat, _, _ = sheet(shown, grid, np.zeros_like(places), places)
    upright = np.ascontiguousarray(flat[::-1]).view(np.uint8).reshape(*flat.shape, 4)
    upright = upright[: np.flatnonzero(upright[..., 3].any(axis=1))[-1] + 1]
    times = max(1, _TILE_PIXELS // max(pictures.shape[1:3]))
    large = enlarge(upright, times, times)
    shrink = min(1.0, _TILE_PIXELS / (times * max(pictures.shape[1:3])))
    text = " ".join(label for label in labels[:_MOST_TILES] if label)
    return image(data_uri(large), round(large.shape[1] * shrink), text)


def _busy_strips(devices: DeviceColumns) -> list[str]:
    edges = np.linspace(float(devices["start_s"][0]), float(devices["end_s"][-1]), _CELLS + 1)
    return strips(resample(devices, edges), _STRIP_WIDTH)
