"""Runs side by side: their metrics by step, and their speeds."""

from __future__ import annotations

from typing import Final

from bokeh.layouts import column
from bokeh.models import Segment
from bokeh.plotting import figure

from distlab.charts import _figure as fig
from distlab.charts._curves import Curves
from distlab.charts.theme import INK, colour
from distlab.folds import ComparisonColumns
from distlab.folds.comparison import MetricOfRuns
from distlab.text.units import plain

_DASHES: Final = ("solid", "dashed", "dotted")
_SMALL = 0.85
"""Heights of other metrics, by that of the first."""

_EMPTY = (
    "No two runs to compare.\n"
    "Record them with dl.record(...) and run.log(loss=...), then choose both."
)
_NO_RATES = "Rates appear after some steps of the runs."


def look(number: int) -> tuple[str, str]:
    """Returns the colour and the dashes of the run with this number: 24 runs differ."""
    return colour(number), _DASHES[number % len(_DASHES)]


class RunComparison:
    """Runs: each metric by step, and steps and examples per second.

    Attributes:
      root: The figures, one below the other; with new metrics there are new ones.
      metrics: The figure of each metric.
      source: One row for each run: `name`, `time`, `steps`, `examples`, `color`.
    """

    def __init__(self, *, height: int = 300) -> None:
        self._height = height
        self.metrics: list[MetricComparison] = []
        self.source = fig.new_source(
            "comparison_rates", "name", "time", "steps", "examples", "color", "dash"
        )
        rates = [
            self._make_rate("Steps per second", "steps"),
            self._make_rate("Examples per second", "examples"),
        ]
        self._empty = [fig.add_empty_text(plot, _NO_RATES) for plot in rates]
        self._speeds = fig.beside(*rates)
        self._titles: list[str] | None = None
        self.root = column(sizing_mode="stretch_width")
        self._make_metrics([])

    def _make_metrics(self, titles: list[str]) -> None:
        """Makes a wide figure of the first metric, and pairs of the others."""
        if titles == self._titles:
            return
        self._titles = titles
        self.metrics = [
            MetricComparison(
                f"comparison_{number}", title, int(self._height * (_SMALL if number else 1))
            )
            for number, title in enumerate(titles or ["Loss, or the first metric logged, by step"])
        ]
        first, *others = [one.root for one in self.metrics]
        pairs = [fig.beside(*others[at : at + 2]) for at in range(0, len(others), 2)]
        self.root.children = [first, *pairs, self._speeds]

    def _make_rate(self, title: str, what: str) -> figure:
        plot = fig.amount_figure(title, height=max(180, self._height * 2 // 3))
        tooltips = [("at", "$snap_x{0.0} s"), (f"{what}/s", "$snap_y{0,0.0}")]
        fig.draw_curves(plot, self.source, "time", what, tooltips=tooltips, dash="dash")
        return plot

    def update(self, columns: ComparisonColumns | None) -> None:
        """Shows what `folds.compare` returned, or nothing."""
        running = columns is not None and any(len(times) for times in columns["time_s"])
        for empty in self._empty:
            fig.set_empty(empty, not running)
        metrics = columns["metrics"] if columns is not None else []
        self._make_metrics([f"{plain(one['name'], 40)} by step" for one in metrics])
        fig.clear(self.source)
        if columns is None:
            return
        names = [plain(name, 32) for name in columns["name"]]
        for chart, one in zip(self.metrics, metrics, strict=False):
            chart.update(one, names)
        colours, dashes = zip(*map(look, range(len(names))), strict=True)
        self.source.data = {
            "name": names, "time": columns["time_s"], "steps": columns["steps_per_s"],
            "examples": columns["examples_per_s"], "color": list(colours), "dash": list(dashes),
        }  # fmt: skip


class MetricComparison:
    """A metric of several runs by step, with a line where they differ most.

    Attributes:
      root: The figure.
      source: One row for each run that has it: `name`, `step`, `value`, `color`, `dash`.
      largest: The line, at most one: `step`, and its ends `low` and `high`.
    """

    def __init__(self, name: str, title: str, height: int) -> None:
        self.source = fig.new_source(name, "name", "step", "value", "color", "dash")
        self.largest = fig.new_source(f"{name}_largest", "step", "low", "high")
        curves = Curves(title, self.source, height=height, dash="dash")
        self.root = curves.root
        ends = {"y0": curves.on_axis("low"), "y1": curves.on_axis("high")}
        gap = Segment(x0="step", x1="step", line_color=INK, line_width=2, **ends)
        fig.draw(self.root, self.largest, gap)
        self._empty = fig.add_empty_text(self.root, _EMPTY)

    def update(self, columns: MetricOfRuns, names: list[str]) -> None:
        """Shows a metric of the runs with these names."""
        having = [number for number, steps in enumerate(columns["step"]) if len(steps)]
        self.source.data = {
            "name": [names[number] for number in having],
            "step": [columns["step"][number] for number in having],
            "value": [fig.finite(columns["value"][number]) for number in having],
            "color": [look(number)[0] for number in having],
            "dash": [look(number)[1] for number in having],
        }
        fig.set_empty(self._empty, not having)
        ends = [columns["largest"]] if columns["largest"] is not None else []
        self.largest.data = {
            name: [one[place] for one in ends] for place, name in enumerate(("step", "low", "high"))
        }
