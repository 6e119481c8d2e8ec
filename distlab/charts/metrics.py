"""Logged numbers over steps, such as the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from distlab.charts import _figure as fig
from distlab.charts.theme import colour
from distlab.folds import MetricColumns
from distlab.text.metric_names import by_interest, is_loss, is_other
from distlab.text.units import plain

_MOST_CURVES: Final = 8
"""The most curves of a chart that readers can distinguish."""


class MetricLines:
    """A curve for each of eight metrics; of long runs the extremes of neighbouring values.

    Args:
      title: Title above the figure.
      wanted: Whether a metric is shown, by its name.
      empty: Text while there are no metrics.
      height: Height in pixels.

    Attributes:
      root: The figure.
      source: One row for each metric: `name`, `step` and `value` (arrays), `color`.
    """

    def __init__(
        self, title: str, wanted: Callable[[str], bool], *, empty: str, height: int = 300
    ) -> None:
        self._wanted = wanted
        self.source = fig.new_source("metrics", "name", "step", "value", "color")
        self.root = fig.curves_by_step(title, self.source, height=height)
        self._empty = fig.add_empty_text(self.root, empty)

    def update(self, columns: MetricColumns) -> None:
        """Shows the newest `Folds.columns("metrics")`."""
        drawn = set(drawn_names(columns, self._wanted))
        chosen = [place for place, name in enumerate(columns["name"]) if name in drawn]
        self.source.data = {
            "name": [plain(columns["name"][place], 40) for place in chosen],
            # As the browser's numbers: Bokeh warns of whole ones that it would round.
            "step": [columns["step"][place].astype(np.float64) for place in chosen],
            "value": [fig.finite(columns["value"][place]) for place in chosen],
            "color": [colour(number) for number in range(len(chosen))],
        }
        fig.set_empty(self._empty, not chosen)


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
        empty="No loss was logged yet.\nrun.log(loss=...) inside dl.record(...) shows it here.",
        height=height,
    )


def other_lines(height: int = 220) -> MetricLines:
    """Returns a chart of the other metrics."""
    return MetricLines(
        "Other metrics",
        is_other,
        empty="No other numbers were logged.\nrun.log(accuracy=...) shows them here.",
        height=height,
    )
