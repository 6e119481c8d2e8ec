"""Two runs side by side: their losses by step, their speeds, and a table of differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from bokeh.core.properties import value
from bokeh.layouts import column, row
from bokeh.models import (
    BasicTicker,
    DataRange1d,
    LabelSet,
    Range1d,
    Segment,
    Text,
)
from bokeh.plotting import figure

from distlab.charts._figure import add_legend, draw, draw_curves, new_figure
from distlab.charts._sources import add_empty_text, clear, finite, new_source, set_empty
from distlab.charts.theme import FONT, INK, colour
from distlab.folds import ComparisonColumns
from distlab.folds.comparison import Unit
from distlab.text.bytes import bytes_text
from distlab.text.units import (
    count_text,
    duration_text,
    plain,
    rate_text,
    share_text,
    value_text,
)

_COLOURS = (colour(0), colour(1))
_DASHES = ("solid", "dashed")
_NOTE_X, _NOTE_BELOW_TOP = 120, 98
"""Pixels: right of the steep begin of a loss, and left of the legend."""

_EMPTY = (
    "No two runs to compare yet.\n"
    "Record them with dl.record(...) and run.log(loss=...), then choose both."
)
_NO_RATES = "Rates show when both runs have taken some steps."
_WRITERS: Final[dict[Unit, Callable[[float], str]]] = {
    "count": count_text,
    "s": duration_text,
    "share": share_text,
    "per second": rate_text,
    "bytes": bytes_text,
    "value": value_text,
}


class RunComparison:
    """Two runs: one metric by step, steps and examples a second, and a table.

    Attributes:
      root: The figures, one below the other.
      source: One row for each line of the table: `what`, `a`, `b`, `ratio` (texts) and `y`.
      curves: One row for each run: `name`, `step`, `value`, `color`.
      rates: One row for each run: `name`, `time`, `steps`, `examples`, `color`.
      notes: A line about the largest difference: `text`.
    """

    def __init__(self, *, height: int = 300) -> None:
        """Makes an empty chart.

        Args:
          height: Height of the first figure in pixels.
        """
        self.source = new_source("comparison", "what", "a", "b", "ratio", "y")
        self.curves = new_source("comparison_curves", "name", "step", "value", "color", "dash")
        self.rates = new_source(
            "comparison_rates", "name", "time", "steps", "examples", "color", "dash"
        )
        self.notes = new_source("comparison_notes", "x", "y", "text")
        self._largest = new_source("comparison_largest", "step", "a", "b")
        self._heads = new_source("comparison_heads", "x", "text", "color")
        self._note_y = height - _NOTE_BELOW_TOP
        loss = self._make_loss(height)
        rates = [
            self._make_rate("Steps a second", "steps", height),
            self._make_rate("Examples a second", "examples", height),
        ]
        self._empty = [add_empty_text(loss, _EMPTY)]
        self._empty += [add_empty_text(plot, _NO_RATES) for plot in rates]
        beside = row(*rates, sizing_mode="stretch_width")
        self.root = column(loss, beside, self._make_table(), sizing_mode="stretch_width")

    def _make_loss(self, height: int) -> figure:
        plot = new_figure(
            "Loss, or the first metric logged, by step", x_label="step", height=height,
            x_range=DataRange1d(range_padding=0.01), y_range=DataRange1d(range_padding=0.08),
        )  # fmt: skip
        plot.xaxis.ticker = BasicTicker(min_interval=1)
        tooltips = [("step", "$snap_x{0,0}"), ("value", "$snap_y{0.0000}")]
        curves = draw_curves(plot, self.curves, "step", "value", tooltips=tooltips, dash="dash")
        gap = Segment(x0="step", x1="step", y0="a", y1="b", line_color=INK, line_width=2)
        draw(plot, self._largest, gap)
        add_legend(plot, curves)
        plot.add_layout(
            LabelSet(
                x="x", y="y", text="text", source=self.notes, x_units="screen", y_units="screen",
                text_color=INK, text_font=value(FONT), text_font_size="12px",
            )
        )  # fmt: skip
        return plot

    def _make_rate(self, title: str, what: str, height: int) -> figure:
        plot = new_figure(
            title, x_label="seconds since the run began", height=max(180, height * 2 // 3),
            x_range=DataRange1d(range_padding=0.01), y_range=DataRange1d(start=0),
        )  # fmt: skip
        tooltips = [("at", "$snap_x{0.0} s"), (f"{what}/s", "$snap_y{0,0.0}")]
        draw_curves(plot, self.rates, "time", what, tooltips=tooltips, dash="dash")
        return plot

    def _make_table(self) -> figure:
        plot = new_figure(
            "What differs", height=320, x_range=Range1d(0, 1), y_range=Range1d(-12.6, 1.6)
        )
        plot.axis.visible = False
        plot.grid.visible = False
        font = {"text_font": value(FONT), "text_font_size": "13px", "text_baseline": "middle"}
        draw(plot, self.source, Text(x=0.01, y="y", text="what", text_color=INK, **font))
        for name, place in (("a", 0.52), ("b", 0.76), ("ratio", 0.97)):
            words = Text(x=place, y="y", text=name, text_color=INK, text_align="right", **font)
            draw(plot, self.source, words)
        heads = Text(
            x="x", y=1, text="text", text_color="color", text_align="right",
            text_font_style="bold", **font,
        )  # fmt: skip
        draw(plot, self._heads, heads)
        return plot

    def update(self, columns: ComparisonColumns | None) -> None:
        """Shows two runs, or none.

        Args:
          columns: What `folds.compare` returned, or None.
        """
        clear(self.source, self.curves, self.rates, self.notes, self._largest, self._heads)
        some = columns is not None and any(len(steps) for steps in columns["step"])
        running = columns is not None and any(len(times) for times in columns["time_s"])
        for empty, shown in zip(self._empty, (some, running, running), strict=True):
            set_empty(empty, not shown)
        if columns is None:
            return
        names = [plain(name, 32) for name in columns["name"]]
        both = {"color": list(_COLOURS), "dash": list(_DASHES)}
        labels = [
            f"{name}: {plain(metric, 24)}" if metric else name
            for name, metric in zip(names, columns["metric"], strict=True)
        ]
        values = [finite(one) for one in columns["value"]]
        self.curves.data = {"name": labels, "step": columns["step"], "value": values, **both}
        self.rates.data = {
            "name": names, "time": columns["time_s"], "steps": columns["steps_per_s"],
            "examples": columns["examples_per_s"], **both,
        }  # fmt: skip
        self._show_largest(columns)
        self._show_table(columns, names)

    def _show_largest(self, columns: ComparisonColumns) -> None:
        text = (
            "The runs share no step with a value: nothing is compared."
            if any(columns["metric"])
            else ""
        )
        if columns["largest"] is not None:
            step, first, second = columns["largest"]
            self._largest.data = {"step": [step], "a": [first], "b": [second]}
            about = "" if all(columns["complete"]) else " (of the values kept)"
            text = (
                f"largest difference{about}: {value_text(abs(second - first))} at step "
                f"{count_text(step)}, {value_text(first)} and {value_text(second)}"
            )
            if first == second:
                text = "no difference at any step" + about
        self.notes.data = {"x": [_NOTE_X], "y": [self._note_y], "text": [text]}

    def _show_table(self, columns: ComparisonColumns, names: list[str]) -> None:
        pairs = list(zip(columns["unit"], columns["a"], columns["b"], strict=True))
        self.source.data = {
            "what": list(columns["what"]),
            "a": [_text(unit, first) for unit, first, _ in pairs],
            "b": [_text(unit, second) for unit, _, second in pairs],
            "ratio": [ratio_text(first, second) for _, first, second in pairs],
            "y": -np.arange(len(pairs), dtype=np.float64),
        }
        self._heads.data = {
            "x": [0.52, 0.76, 0.97],
            "text": [*names, "second / first"],
            "color": [*_COLOURS, INK],
        }


def ratio_text(first: float | None, second: float | None) -> str:
    """Returns the second number over the first as text, such as `"× 1.25"`."""
    if first is None or second is None or not first:
        return "same" if first == second == 0 else ""
    ratio = second / first
    if not math.isfinite(ratio):
        return ""
    return "same" if ratio == 1 else f"\u00d7 {ratio:.3g}"


def _text(unit: Unit, number: float | None) -> str:
    return "not known" if number is None else _WRITERS[unit](number)
