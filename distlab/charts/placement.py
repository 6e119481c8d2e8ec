"""The places of variables on devices and parameter servers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from bokeh.models import CustomJS, Rect
from bokeh.plotting import figure

from distlab.charts import _figure as fig
from distlab.charts.theme import FAINT, ink_on, ramp
from distlab.folds import PlacementColumns
from distlab.folds.arrays import Floats, Ints
from distlab.text.bytes import bytes_text
from distlab.text.units import plain

_ROW_PIXELS = 13
_ABOVE_PIXELS = 70
"""The title and the names of the devices."""
_MOST_NAMES = 16
_NOTHING = "rgba(0, 0, 0, 0)"
_TOTAL = "#5b6675"
_EMPTY = "No variables.\ndl.Variable(...) inside strategy.scope()\nappears here with its copies."
_KEEP_LEGIBLE = """
const columns = Math.min(devices.get_length() ?? 0, most)
plot.setv({min_width: Math.max(200, 110 + cell * columns)}, {sync: false})
"""


class PlacementTable:
    """Variables by devices or parameter servers, with the bytes of each copy and the totals.

    The largest variables have a row each, as many as the height permits; the others share
    one.

    Args:
      height: Height in pixels.
      narrow: Whether it is for the width of a notebook, with fewer texts.

    Attributes:
      root: The figure.
      source: One row for each cell: `x`, `y`, `bytes`, `text`, `variable`, `device`,
        `detail` and colours.
    """

    def __init__(self, *, height: int = 420, narrow: bool = False) -> None:
        self._most_texts = 8 if narrow else _MOST_NAMES
        self._most_rows = max(2, (height - _ABOVE_PIXELS) // _ROW_PIXELS - 2)
        self.source = fig.new_source(
            "placement",
            *("x", "y", "bytes", "text", "variable", "device", "detail", "color", "ink", "line"),
        )
        self._rows = fig.new_source("placement_rows", "y", "name", "text")
        self._devices = fig.new_source("placement_devices", "x", "name")
        plot = fig.new_figure("Bytes of each variable, and where it lies", height=height)
        box = Rect(
            x="x", y="y", width=0.94, height=0.86, fill_color="color", line_color="line",
            line_alpha=0.7,
        )  # fmt: skip
        cells = fig.draw(plot, self.source, box)
        fig.draw_text(plot, self.source, color="ink", text_align="center")
        plot.x_range, plot.y_range = fig.range_of([cells], 0.0), fig.range_of([cells], 0.02)
        plot.grid.visible = False
        fig.label_rows(plot, self._rows, left="name", right="" if narrow else "text")
        plot.below = []
        plot.above.insert(0, fig.labelled_axis(self._devices, "x", "name"))
        plot.min_border_left, plot.min_border_right = (90, 8) if narrow else (150, 150)
        if not narrow:
            fig.yield_sides(plot, 640, self._devices, self._most_texts)
        self._keep_legible(plot)
        fig.add_hover(plot, cells, ("variable", "@variable: @detail"), ("device", "@device: @text"))
        self._empty = fig.add_empty_text(plot, _EMPTY)
        self.root = plot

    def _keep_legible(self, plot: figure) -> None:
        """Keeps columns wide enough for their texts: a narrow page scrolls the chart."""
        callback = CustomJS(
            args={
                "plot": plot,
                "devices": self._devices,
                "most": self._most_texts,
                "cell": fig.CELL_PIXELS,
            },
            code=_KEEP_LEGIBLE,
        )
        self._devices.js_on_change("data", callback)
        plot.js_on_change("outer_width", callback)

    def update(self, columns: PlacementColumns) -> None:
        """Shows the newest `Folds.columns("placement")`."""
        rows = _rows(columns, self._most_rows)
        devices = [plain(name, 18) for name in columns["device"]]
        heights = -np.arange(len(rows.names), dtype=np.float64)
        heights[len(rows.names) - rows.totals :] -= 0.35  # a gap above the totals
        self._rows.data = {"y": heights, "name": rows.names, "text": rows.details}
        self._devices.data = {
            "x": [float(place) for place in range(len(devices))],
            "name": list(map(fig.on_two_lines, fig.thinned(devices, _MOST_NAMES))),
        }
        cells = _cells(rows, devices, heights)
        if len(devices) > self._most_texts:  # only tooltips have the bytes
            cells["text"] = [""] * len(cells["text"])
        self.source.data = cells
        fig.set_empty(self._empty, not rows.names)


class _Rows(NamedTuple):
    """Variables, the others together, and the totals."""

    names: list[str]
    details: list[str]
    bytes: Ints
    parts: list[list[str]]  # Of variables that are divided
    totals: int


def _rows(columns: PlacementColumns, most: int) -> _Rows:
    table = columns["bytes"]
    if not len(table):
        return _Rows([], [], table, [], 0)
    names = [plain(name, 22) for name in columns["name"][:most]]
    details = [
        (f"{dtype}[{', '.join(map(str, shape))}] " if dtype else "") + layout_text(layout)
        for dtype, shape, layout in zip(
            columns["dtype"], columns["shape"], columns["layout"], strict=True
        )
    ][:most]
    rows = [table[:most]]
    if len(table) > most:
        names.append(f"{len(table) - most} others")
        details.append("smaller variables")
        rows.append(table[most:].sum(axis=0, keepdims=True))
    total = table.sum(axis=0, keepdims=True)
    copies = f"{bytes_text(int((total * columns['devices']).sum()))} with all copies"
    totals = {"total": (copies, total)}
    whole = columns["whole_bytes"][None]
    if (whole > total).any():
        totals["not divided"] = ("if each device had whole copies", whole)
    return _Rows(
        [*names, *totals],
        [*details, *(text for text, _ in totals.values())],
        np.concatenate([*rows, *(sizes for _, sizes in totals.values())]),
        columns["part"][:most],
        len(totals),
    )


def layout_text(layout: str) -> str:
    """Returns a variable's layout, or an array's spec, as words."""
    return "per replica" if layout == "per_replica" else plain(layout, 40)


def _cells(
    shown: _Rows, devices: list[str], heights: Floats
) -> dict[str, Ints | Floats | list[str]]:
    rows, places = (axis.ravel() for axis in np.indices((len(shown.names), len(devices))))
    sizes = shown.bytes.ravel() if shown.names else np.zeros(0, np.int64)
    shares = _shares(sizes)
    total = rows >= len(shown.names) - shown.totals
    parts = shown.parts + [[]] * (len(shown.names) - len(shown.parts))
    held = [
        f", holds {parts[row][place]}" if parts[row] else ""
        for row, place in zip(rows, places, strict=True)
    ]
    return {
        "x": places.astype(np.float64),
        "y": heights[rows],
        "bytes": sizes,
        "text": [bytes_text(int(size)) if size else "" for size in sizes],
        "variable": [shown.names[row] for row in rows],
        "device": [devices[place] for place in places],
        "detail": [shown.details[row] + part for row, part in zip(rows, held, strict=True)],
        "color": np.where(sizes == 0, _NOTHING, np.where(total, _TOTAL, ramp(shares))).tolist(),
        "ink": np.where(total, "#ffffff", ink_on(shares)).tolist(),
        "line": np.where(sizes == 0, FAINT, _NOTHING).tolist(),
    }


def _shares(sizes: Ints) -> Floats:
    """Returns places on the colour ramp, by the logarithms of sizes."""
    placed = np.log(np.maximum(1, sizes))
    known = placed[sizes > 0]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    return 0.08 + 0.87 * np.clip((placed - low) / ((high - low) or 1.0), 0, 1)
