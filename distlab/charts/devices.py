"""Busy shares of the devices, now and over time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from bokeh.models import (
    CustomJSTickFormatter,
    DataRange1d,
    FixedTicker,
    Image,
    LinearColorMapper,
    Range1d,
    Segment,
)
from bokeh.plotting import figure

from distlab.charts import _figure as fig
from distlab.charts.theme import INK, colour, shades
from distlab.folds import DeviceColumns
from distlab.folds.arrays import Floats
from distlab.folds.devices import computing
from distlab.text.units import plain, share_text

_MOST_CELLS = 240
_WINDOWS_A_CELL = 2
_LINES = 8
_SHADES = shades(colour(0), 64)
"""Colours of shares, as in the lanes of devices on the page Steps."""

_SCALE_HEIGHT = 0.035
"""Height of the scale of colours, as a share of that of all rows."""

_EMPTY = "No devices watched.\nShares appear after some steps."


class DeviceShares:
    """The computing of each device: a strip over time, and a bar for the mean.

    A bar goes on, pale, for the time in which a step is in flight and waits; before the first
    capture the two are not known apart, and all of it is strong. A cell of a strip is the mean over
    the time watched in it; blank cells were not watched. While the run goes on, a mark on each bar
    is the newest window. The scale of the bars shows the colour of each share.

    Attributes:
      root: A row of two figures.
      source: One row for each device: `device`, `y`, `mean` (computing), `flight`, `text`, `now`,
        and the labels of the axes.
    """

    def __init__(self, *, height: int = 320) -> None:
        self.source = fig.new_source(
            "devices",
            *("device", "label", "y", "mean", "flight", "text", "amount", "now", "low", "high"),
        )
        self._scale = fig.new_source("device_scale", "image", "y", "dh")
        self._strips = fig.new_source("device_strips", "image", "x", "y", "dw", "dh")
        bars = self._make_bars(height)
        strips = self._make_strips(height, bars.y_range)
        self._empty = fig.add_empty_text(strips, _EMPTY)
        self.root = fig.beside(strips, bars)

    def _make_bars(self, height: int) -> figure:
        plot = fig.new_figure(
            "Mean of the run", height=height, sizing_mode="fixed", width=244, x_range=Range1d(0, 1)
        )
        track = fig.draw_track(plot, self.source, 1)
        fig.draw_bars(plot, self.source, "mean", "flight", color=_SHADES[1])
        fig.draw_bars(plot, self.source, 0, "mean", color=_SHADES[-1])
        newest = Segment(x0="now", x1="now", y0="low", y1="high", line_color=INK, line_width=3)
        fig.draw(plot, self.source, newest)
        scale = Image(image="image", x=0, y="y", dw=1, dh="dh", color_mapper=_colours())
        shown = fig.draw(plot, self._scale, scale)
        plot.y_range = fig.range_of([track, shown], 0.06)
        fig.label_rows(plot, self.source, left="label", right="amount")
        plot.left = []
        plot.min_border_left = 18  # the last tick of the strips ends there
        plot.xaxis.ticker = FixedTicker(ticks=[0, 0.5, 1])
        plot.xaxis.formatter = CustomJSTickFormatter(code="return `${Math.round(100 * tick)} %`")
        plot.xaxis.axis_label = "computing; pale: in flight"
        fig.add_hover(plot, track, ("device", "@device"), ("share", "@text"))
        return plot

    def _make_strips(self, height: int, rows: DataRange1d) -> figure:
        plot = fig.new_figure(
            "What each device computes",
            x_label="seconds since the run began",
            height=height,
            y_range=rows,
        )
        glyph = Image(image="image", x="x", y="y", dw="dw", dh="dh", color_mapper=_colours())
        image = fig.draw(plot, self._strips, glyph)
        plot.x_range = fig.range_of([image], 0)
        rows.renderers = [*rows.renderers, image]  # either figure may be drawn first
        plot.grid.visible = False
        fig.label_rows(plot, self.source, left="label")
        plot.min_border_left = 64
        fig.add_hover(plot, image, ("at", "$x{0.0} s"), ("computing", "@image{0 %}"))
        return plot

    def update(self, columns: DeviceColumns) -> None:
        """Shows the newest `Folds.columns("devices")`."""
        devices = [plain(name, 24) for name in columns["device"]]
        rows = -np.arange(len(devices), dtype=np.float64)
        computes = columns["computes"]
        flight = np.clip(columns["mean"], 0, 1)
        mean, now = computing(flight, computes), computing(columns["now"], computes)
        amounts = [share_text(share) for share in mean]
        self.source.data = {
            "device": devices,
            "label": fig.thinned(devices),
            "y": rows,
            "mean": mean,
            "flight": np.maximum(flight, mean),
            "text": [
                f"computing {amount}, in flight {share_text(share)}"
                for amount, share in zip(amounts, flight, strict=True)
            ]
            if np.isfinite(computes).all()
            else [f"in flight {amount}" for amount in amounts],
            "amount": fig.thinned(amounts),
            "now": np.where(columns["ended"], np.nan, np.clip(now, 0, 1)),
            "low": rows - 0.4,
            "high": rows + 0.4,
        }
        self._update_scale(len(devices))
        self._update_strips(columns, len(devices))
        fig.set_empty(self._empty, not devices)

    def _update_scale(self, rows: int) -> None:
        if not rows:
            fig.clear(self._scale)
            return
        high = _SCALE_HEIGHT * rows
        shares = np.linspace(0, 1, len(_SHADES), dtype=np.float32)
        self._scale.data = {"image": [shares[None]], "y": [0.5 - rows - 1.5 * high], "dh": [high]}

    def _update_strips(self, columns: DeviceColumns, devices: int) -> None:
        if not devices or not len(columns["start_s"]):
            fig.clear(self._strips)
            return
        first, last = float(columns["start_s"][0]), float(columns["end_s"][-1])
        # Pauses between two windows are short: a cell is wide enough to cover them.
        cells = min(_MOST_CELLS, -(-len(columns["start_s"]) // _WINDOWS_A_CELL))
        shares = computing(
            resample(columns, np.linspace(first, last, cells + 1)), columns["computes"]
        )
        self._strips.data = {
            "image": [_strips(shares)],
            "x": [first],
            "y": [0.5 - devices],
            "dw": [last - first],
            "dh": [devices],
        }


def resample(columns: DeviceColumns, edges: Floats) -> Floats:
    """Returns busy shares in other cells of time."""
    starts, ends, shares = columns["start_s"], columns["end_s"], columns["busy"]
    starts = np.maximum(starts, np.concatenate([starts[:1], ends[:-1]]))
    lengths = np.maximum(ends - starts, 0)
    watched = in_cells(edges, starts, ends, lengths)
    busy = np.stack([in_cells(edges, starts, ends, lengths * share) for share in shares.T], 1)
    seen = watched > 1e-3 * np.diff(edges)
    return np.where(seen[:, None], busy / np.where(seen, watched, 1)[:, None], np.nan)


def _colours() -> LinearColorMapper:
    """Returns the colours of shares: grey is for 0 alone, and what was not watched has none."""
    least, nothing = np.finfo(np.float32).tiny, "rgba(0, 0, 0, 0)"
    grey, *blues = _SHADES
    return LinearColorMapper(palette=blues, low=least, high=1, low_color=grey, nan_color=nothing)


def in_cells(edges: Floats, starts: Floats, ends: Floats, amounts: Floats) -> Floats:
    """Returns how much of the amounts of spans, which don't overlap, is in each cell of time."""
    totals = np.cumsum(amounts)
    times = np.stack([starts, ends], axis=1).ravel()
    return np.diff(np.interp(edges, times, np.stack([totals - amounts, totals], axis=1).ravel()))


def _strips(shares: Floats) -> npt.NDArray[np.float32]:
    """Returns an image with a strip for each device, the first on top, and gaps between."""
    rows = np.repeat(shares.T[::-1], _LINES, axis=0).astype(np.float32)
    rows[::_LINES] = np.nan
    rows[_LINES - 1 :: _LINES] = np.nan
    return rows
