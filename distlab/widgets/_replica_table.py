"""The table of replicas in a view's picture: their examples, and how busy they were."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from distlab.charts.sheet import Grid, as_pictures, sheet
from distlab.charts.devices import resample
from distlab.charts.theme import colour
from distlab.widgets._facts import Facts
from distlab.widgets._png import data_uri, enlarge
from distlab.widgets._still import MOST_ROWS, image, table
from distlab.widgets._strips import strips

_MOST_TILES = 48
_TILES_IN_A_LINE = 8
_TILE_PIXELS = 24
_CELLS = 80
_STRIP_WIDTH = 160


def replica_table(batch: dict[str, Any], devices: dict[str, Any], said: Facts) -> str:
    """Draws a row for each replica, of those of these that the view shows.

    Args:
      batch: the batch to show, from `folds.batch`.
      devices: columns of `folds.Devices`.
      said: the same in words.
    """
    sizes = said.sizes if "batches" in said.panes else []
    busy = said.busy if "devices" in said.panes else []
    names = [name for name, _ in sizes or busy]
    if not names:
        return ""
    columns: dict[str, list[str]] = {"Replica on": [escape(name) for name in names]}
    if sizes:
        columns["Examples"] = _tiles(batch)
        columns["Count"] = [escape(size) for _, size in sizes]
    if busy:
        columns["Busy over time"] = _strips(devices)
        columns["Busy"] = [escape(share) for _, share in busy]
    marks = [colour(row) for row in range(len(names))]
    return table(columns, "replicas", marks)


def _tiles(batch: dict[str, Any]) -> list[str]:
    """Draws each replica's examples as one image, or says why there is none."""
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


def _strips(devices: dict[str, Any]) -> list[str]:
    """Draws each device's busy share over time as one image."""
    edges = np.linspace(float(devices["start_s"][0]), float(devices["end_s"][-1]), _CELLS + 1)
    return strips(resample(devices, edges), _STRIP_WIDTH)
