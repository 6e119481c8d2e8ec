"""Bokeh charts, one a file: each has a `root`, a `source` and an `update`.

A chart knows columns and nothing of events, servers or notebooks. All that
changes is in the data of its sources, so it can be embedded anywhere (for
example with `bokeh.embed.json_item`) and kept up to date by replacing that
data. The page around it adds `theme.CSS` for light and dark.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from distlab.charts import theme
from distlab.charts._patch import data_patch
from distlab.charts.batches import BatchTiles
from distlab.charts.captured import CapturedSpans
from distlab.charts.comparison import RunComparison
from distlab.charts.devices import DeviceShares
from distlab.charts.history import BatchHistory
from distlab.charts.memory import ProcessMemory
from distlab.charts.metrics import MetricLines, loss_lines, other_lines
from distlab.charts.placement import PlacementTable
from distlab.charts.rates import Rates
from distlab.charts.reductions import ReductionBars, reduction_rows
from distlab.charts.timeline import StepTimeline
from distlab.charts.traffic import Traffic, TrafficRow, traffic_row
from distlab.text import units

__all__ = [
    "BatchHistory",
    "BatchTiles",
    "CapturedSpans",
    "Chart",
    "DeviceShares",
    "MetricLines",
    "PlacementTable",
    "ProcessMemory",
    "Rates",
    "ReductionBars",
    "RunComparison",
    "StepTimeline",
    "Traffic",
    "TrafficRow",
    "data_patch",
    "loss_lines",
    "other_lines",
    "reduction_rows",
    "theme",
    "traffic_row",
    "units",
]


C_contra = TypeVar("C_contra", contravariant=True)


class Chart(Protocol[C_contra]):
    """A chart of columns of one type, such as `Chart[DeviceColumns]`."""

    root: Any
    """The Bokeh model to put on a page."""

    source: Any
    """Its main `ColumnDataSource`."""

    def update(self, columns: C_contra) -> None:
        """Shows the newest columns."""
