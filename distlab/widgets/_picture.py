"""The picture that stays in the notebook: a table with small images, no program.

Sanitizers of notebook viewers let tables, images and some inline style pass,
and nothing else. So all that matters is in those, and as text.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from distlab.charts._sheet import Grid, as_pictures, sheet
from distlab.charts.devices import resample
from distlab.charts.theme import colour
from distlab.folds import Folds
from distlab.widgets._facts import Facts
from distlab.widgets._png import data_uri, enlarge

_MOST_ROWS = 32
_MOST_TILES = 48
_TILES_IN_A_LINE = 8
_TILE_PIXELS = 24
_CELLS = 80
_CELL = "padding:2px 10px 2px 0;text-align:left;vertical-align:middle;border:none"
_HEAD = f"{_CELL};font-weight:600"


def picture(folds: Folds, batch: dict[str, Any], said: Facts) -> str:
    """Draws a run as HTML that needs neither script nor style sheet.

    Args:
      folds: all that is known of it.
      batch: the batch to show, from `folds.batch`.
      said: the same in words.
    """
    run = f"<strong>{escape(said.name)}</strong>: {escape(said.status)}, {escape(said.steps)}"
    parts = [f"<p style='margin:4px 0'>{line}</p>" for line in (run, escape(said.batch))]
    if said.sizes:
        parts.append(_table(folds, batch, said))
    parts += [f"<p style='margin:2px 0'>{escape(line)}</p>" for line in said.reductions]
    parts += [f"<p style='margin:2px 0'><small>{escape(line)}</small></p>" for line in said.notes]
    return "".join(parts)


def _table(folds: Folds, batch: dict[str, Any], said: Facts) -> str:
    tiles = _tiles(batch)
    strips = _strips(folds.columns("devices")) if said.busy else []
    titles = ["Replica on", "Examples", "Count", *(["Busy over time", "Busy"] if strips else [])]
    rows = ["".join(f"<th style='{_HEAD}'>{title}</th>" for title in titles)]
    for row, (name, size) in enumerate(said.sizes[:_MOST_ROWS]):
        mark = f"border-left:4px solid {colour(row)};padding-left:6px"
        cells = [f"<td style='{_CELL};{mark}'>{escape(name)}</td>"]
        cells += [_cell(tiles[row]), _cell(escape(size))]
        if row < len(strips):
            cells += [_cell(strips[row]), _cell(escape(said.busy[row]))]
        rows.append("".join(cells))
    body = "".join(f"<tr style='background:none'>{row}</tr>" for row in rows)
    left = len(said.sizes) - _MOST_ROWS
    more = f"<p style='margin:2px 0'>and {left} more replicas</p>" if left > 0 else ""
    return f"<table style='border-collapse:collapse;margin:6px 0'>{body}</table>{more}"


def _cell(inside: str) -> str:
    return f"<td style='{_CELL}'>{inside}</td>"


def _tiles(batch: dict[str, Any]) -> list[str]:
    """Draws each replica's examples as one image, or says why there is none."""
    ends = np.cumsum(batch["size"])
    if not batch["form"]:
        return ["no preview" if size else "" for size in batch["size"]]
    pixels = batch["pixels"]
    pictures = as_pictures(pixels) if batch["form"] == "numbers" else np.asarray(pixels)
    return [
        _replica_tiles(pictures[end - size : end], batch["label"][end - size : end])
        for size, end in zip(batch["size"], ends.tolist(), strict=True)
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
    text = escape(" ".join(label for label in labels[:_MOST_TILES] if label), quote=True)
    shrink = min(1.0, _TILE_PIXELS / (times * max(pictures.shape[1:3])))
    width = round(large.shape[1] * shrink)
    # The notebook's own style sheet would let it shrink to nothing in a narrow table.
    style = f"width:{width}px;max-width:none;vertical-align:middle"
    return f'<img src="{data_uri(large)}" alt="{text}" title="{text}" style="{style}">'


def _strips(devices: dict[str, Any]) -> list[str]:
    """Draws each device's busy share over time as one image."""
    from bokeh.palettes import Cividis256

    edges = np.linspace(float(devices["start_s"][0]), float(devices["end_s"][-1]), _CELLS + 1)
    shares = resample(devices, edges)
    palette = np.array([tuple(bytes.fromhex(code[1:])) for code in Cividis256], np.uint8)
    colours = palette[np.clip(np.nan_to_num(shares) * 255, 0, 255).astype(np.uint8)]
    seen = np.where(np.isnan(shares), 0, 255).astype(np.uint8)
    rgba = np.concatenate([colours, seen[..., None]], axis=2)
    style = "width:160px;max-width:none;vertical-align:middle"
    return [
        f'<img src="{data_uri(enlarge(rgba[None, :, device], 2, 16))}" alt="" style="{style}">'
        for device in range(shares.shape[1])
    ]
