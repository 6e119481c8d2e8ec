"""Runs side by side: their losses by step, and their speeds."""

from __future__ import annotations

from bokeh.layouts import column
from bokeh.models import (
    Segment,
)
from bokeh.plotting import figure

from distlab.charts import _figure as fig
from distlab.charts._curves import Curves
from distlab.charts.theme import INK, colour
from distlab.folds import ComparisonColumns
from distlab.text.units import (
    count_text,
    plain,
    value_text,
)

_DASHES = ("solid", "dashed", "dotted", "dotdash")
_NOTE_X, _NOTE_BELOW_TOP = 120, 136
"""Pixels: right of the steep begin of a loss, and below title and legend."""

_EMPTY = (
    "No two runs to compare yet.\n"
    "Record them with dl.record(...) and run.log(loss=...), then choose both."
)
_NO_RATES = "Rates show when both runs have taken some steps."


class RunComparison:
    """Runs: one metric by step, and steps and examples per second.

    Attributes:
      root: The figures, one below the other.
      source: One row for each run: `name`, `step`, `value`, `color`.
      rates: One row for each run: `name`, `time`, `steps`, `examples`, `color`.
      notes: A line about the largest difference: `text`.
    """

    def __init__(self, *, height: int = 300) -> None:
        self.source = fig.new_source("comparison_curves", "name", "step", "value", "color", "dash")
        self.rates = fig.new_source(
            "comparison_rates", "name", "time", "steps", "examples", "color", "dash"
        )
        self.notes = fig.new_source("comparison_notes", "x", "y", "text")
        self._largest = fig.new_source("comparison_largest", "step", "a", "b")
        self._note_y = height - _NOTE_BELOW_TOP
        loss = self._make_loss(height)
        rates = [
            self._make_rate("Steps per second", "steps", height),
            self._make_rate("Examples per second", "examples", height),
        ]
        self._empty = [fig.add_empty_text(loss, _EMPTY)]
        self._empty += [fig.add_empty_text(plot, _NO_RATES) for plot in rates]
        self.root = column(loss, fig.beside(*rates), sizing_mode="stretch_width")

    def _make_loss(self, height: int) -> figure:
        title = "Loss, or the first metric logged, by step"
        curves = Curves(title, self.source, height=height, dash="dash")
        plot = curves.root
        ends = {"y0": curves.on_axis("a"), "y1": curves.on_axis("b")}
        gap = Segment(x0="step", x1="step", line_color=INK, line_width=2, **ends)
        fig.draw(plot, self._largest, gap)
        fig.add_labels(plot, self.notes, y_units="screen")
        return plot

    def _make_rate(self, title: str, what: str, height: int) -> figure:
        plot = fig.amount_figure(title, height=max(180, height * 2 // 3))
        tooltips = [("at", "$snap_x{0.0} s"), (f"{what}/s", "$snap_y{0,0.0}")]
        fig.draw_curves(plot, self.rates, "time", what, tooltips=tooltips, dash="dash")
        return plot

    def update(self, columns: ComparisonColumns | None) -> None:
        """Shows what `folds.compare` returned, or nothing."""
        fig.clear(self.source, self.rates, self.notes, self._largest)
        some = columns is not None and any(len(steps) for steps in columns["step"])
        running = columns is not None and any(len(times) for times in columns["time_s"])
        for empty, shown in zip(self._empty, (some, running, running), strict=True):
            fig.set_empty(empty, not shown)
        if columns is None:
            return
        names = [plain(name, 32) for name in columns["name"]]
        numbers = range(len(names))
        looks = {
            "color": [colour(number) for number in numbers],
            "dash": [_DASHES[number % len(_DASHES)] for number in numbers],
        }
        labels = [
            f"{name}: {plain(metric, 24)}" if metric else name
            for name, metric in zip(names, columns["metric"], strict=True)
        ]
        values = [fig.finite(one) for one in columns["value"]]
        self.source.data = {"name": labels, "step": columns["step"], "value": values, **looks}
        self.rates.data = {
            "name": names, "time": columns["time_s"], "steps": columns["steps_per_s"],
            "examples": columns["examples_per_s"], **looks,
        }  # fmt: skip
        self._show_largest(columns)

    def _show_largest(self, columns: ComparisonColumns) -> None:
        text = (
            "The runs share no step with a value: nothing is compared."
            if any(columns["metric"])
            else ""
        )
        if columns["largest"] is not None:
            step, first, second = columns["largest"]
            self._largest.data = {"step": [step], "a": [first], "b": [second]}
            about = "" if all(columns["complete"][:2]) else " (of means of neighbours)"
            text = (
                f"largest difference{about}: {value_text(abs(second - first))} at step "
                f"{count_text(step)}, {value_text(first)} and {value_text(second)}"
            )
            if first == second:
                text = "no difference at any step" + about
        self.notes.data = {"x": [_NOTE_X], "y": [self._note_y], "text": [text]}
