"""Logged numbers over steps, such as the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from bokeh.models import BasicTicker, CustomJSHover, HoverTool, MultiLine

from distlab.charts import _figure as fig
from distlab.charts._curves import Curves, outline
from distlab.charts.theme import colour
from distlab.folds import MetricColumns
from distlab.folds.arrays import Floats
from distlab.text.metric_names import by_interest, is_loss, is_other
from distlab.text.units import plain, value_text

_MOST_CURVES: Final = 8
"""The most curves of a chart that readers can distinguish."""

_NO_OTHERS: Final = "No other numbers were logged.\nrun.log(accuracy=...) shows them here."

_PART: Final = 0.7
"""The part of a row's height that its curve takes."""

_VALUE_OF_ROW: Final = f"""
const row = special_vars.index
const [low, high, y] = ["low", "high", "y"].map((name) => rows.get_column(name)[row])
return Number((low + ((value - y) / {_PART} + 0.5) * ((high - low) || 1)).toPrecision(5))
"""


class MetricLines:
    """A curve for each of eight metrics; in long runs the mean of neighbours, and their extremes.

    Args:
      title: Title above the figure.
      wanted: Whether a metric is shown, by its name.
      empty: Text while there are no metrics.
      height: Height in pixels.

    Attributes:
      root: The figure.
      source: One row for each metric: `name`, `step` and `value` (arrays), `color`.
      bands: One row for each of them that has neighbours with a common point.
    """

    def __init__(
        self, title: str, wanted: Callable[[str], bool], *, empty: str, height: int = 300
    ) -> None:
        self._wanted = wanted
        self.source = fig.new_source("metrics", "name", "step", "value", "color")
        curves = Curves(title, self.source, height=height)
        self.root, self.bands = curves.root, curves.bands
        self._empty = fig.add_empty_text(self.root, empty)

    def update(self, columns: MetricColumns) -> None:
        """Shows the newest `Folds.columns("metrics")`."""
        chosen = _places(columns, self._wanted)
        banded = [place for place in chosen if columns["merged"][place] > 1]
        inks = {place: colour(number) for number, place in enumerate(chosen)}
        outlines = [
            outline(*(columns[name][place] for name in ("step", "low", "high"))) for place in banded
        ]
        self.source.data = {
            "name": [plain(columns["name"][place], 40) for place in chosen],
            "step": [columns["step"][place] for place in chosen],
            "value": [fig.finite(columns["value"][place]) for place in chosen],
            "color": list(inks.values()),
        }
        self.bands.data = {
            "step": [step for step, _ in outlines],
            "value": [value for _, value in outlines],
            "color": [inks[place] for place in banded],
        }
        fig.set_empty(self._empty, not chosen)


class MetricRows:
    """A row for each of eight metrics but losses, from its own lowest to its own highest value.

    Attributes:
      root: The figure.
      source: One row for each metric: `name`, `last`, `step`, `place` (arrays), `low`, `high`.
    """

    def __init__(self, *, height: int = 220) -> None:
        self.source = fig.new_source(
            "metric_rows", "y", "name", "last", "step", "place", "low", "high", "color", "begin",
            "end",
        )  # fmt: skip
        plot = fig.new_figure("Other metrics", x_label="step", height=height)
        ground = fig.draw_track(plot, self.source, "end", left="begin", height=0.84)
        plot.y_range, plot.x_range = fig.range_of([ground], 0.02), fig.range_of([ground], 0.01)
        plot.xaxis.ticker = BasicTicker(min_interval=1)
        plot.xaxis.formatter = fig.number_formatter()
        fig.label_rows(plot, self.source, left="name", right="last")
        lines = MultiLine(xs="step", ys="place", line_color="color", line_width=2)
        curves = fig.draw(plot, self.source, lines)
        value = CustomJSHover(args={"rows": self.source}, code=_VALUE_OF_ROW)
        plot.add_tools(
            HoverTool(
                renderers=[curves],
                line_policy="nearest",
                tooltips=[("", "@name"), ("step", "$snap_x{0,0}"), ("value", "$snap_y{custom}")],
                formatters={"$snap_y": value},
            )
        )
        self._empty = fig.add_empty_text(plot, _NO_OTHERS)
        self.root = plot

    def update(self, columns: MetricColumns) -> None:
        """Shows the newest `Folds.columns("metrics")`."""
        chosen = _places(columns, is_other)
        steps = [columns["step"][place] for place in chosen]
        values = [fig.finite(columns["value"][place]) for place in chosen]
        lows, highs = zip(*map(_extremes, values), strict=True) if chosen else ((), ())
        heights = range(len(chosen) - 1, -1, -1)
        begin = min((step[0] for step in steps), default=0.0)
        end = max((step[-1] for step in steps), default=0.0)
        self.source.data = {
            "y": list(heights),
            "name": [plain(columns["name"][place], 20) for place in chosen],
            "last": [value_text(columns["last"][place]) for place in chosen],
            "step": steps,
            "place": [
                row + _PART * ((value - low) / ((high - low) or 1.0) - 0.5)
                for row, value, low, high in zip(heights, values, lows, highs, strict=True)
            ],
            "low": list(lows),
            "high": list(highs),
            "color": [colour(number) for number in range(len(chosen))],
            "begin": [begin] * len(chosen),
            "end": [max(end, begin + 1)] * len(chosen),
        }
        fig.set_empty(self._empty, not chosen)


def _places(columns: MetricColumns, wanted: Callable[[str], bool]) -> list[int]:
    drawn = set(drawn_names(columns, wanted))
    return [place for place, name in enumerate(columns["name"]) if name in drawn]


def _extremes(values: Floats) -> tuple[float, float]:
    """Returns the lowest and highest number of a curve; zeros where it has none."""
    kept = values[np.isfinite(values)]
    return (float(kept.min()), float(kept.max())) if len(kept) else (0.0, 0.0)


def drawn_names(columns: MetricColumns, wanted: Callable[[str], bool]) -> list[str]:
    """Returns the names of the metrics that a chart draws, those that people look for first."""
    return by_interest(filter(wanted, columns["name"]))[:_MOST_CURVES]


def loss_lines(height: int = 300) -> MetricLines:
    """Returns a chart of the metrics with "loss" in their names.

    Example:
      >>> from distlab.charts import loss_lines
      >>> from distlab.events import Metric
      >>> from distlab.folds import Folds
      >>> folds = Folds()
      >>> folds.add([Metric(time_ns=0, step=7, values={"val_loss": 0.5, "accuracy": 0.9})])
      >>> chart = loss_lines()
      >>> chart.update(folds.columns("metrics"))
      >>> chart.source.data["name"], chart.source.data["value"][0].tolist()
      (['val_loss'], [0.5])
    """
    return MetricLines(
        "Loss",
        is_loss,
        empty="No loss logged.\nrun.log(loss=...) inside dl.record(...) shows it here.",
        height=height,
    )


def other_lines(height: int = 220) -> MetricRows:
    """Returns a chart of the other metrics."""
    return MetricRows(height=height)
