"""Bokeh charts: each has a `root`, a `source` and an `update`.

A chart knows columns of folds, and neither events nor servers nor notebooks. Only the data
of its sources changes: it can be embedded anywhere, for example with
`bokeh.embed.json_item`, and updated by replacing that data (`data_patch`). The page around
it adds `theme.CSS` for light and dark.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypedDict, TypeVar

from bokeh.core.serialization import Ref, Serializer
from bokeh.models import ColumnDataSource, LayoutDOM

from distlab.charts import theme
from distlab.charts._figure import say_not_drawn
from distlab.charts.batches import BatchTiles
from distlab.charts.captured import CapturedSpans
from distlab.charts.closures import ClosureLanes
from distlab.charts.comparison import RunComparison
from distlab.charts.devices import DeviceShares
from distlab.charts.metrics import MetricLines, loss_lines, other_lines
from distlab.charts.over_time import BatchHistory, ProcessMemory, Rates, ServerTraffic
from distlab.charts.placement import PlacementTable
from distlab.charts.reductions import AxisBars, ReductionBars, reduction_rows
from distlab.charts.timeline import StepTimeline
from distlab.charts.traffic import Traffic, TrafficRow, traffic_row
from distlab.text import units

__all__ = [
    "AxisBars",
    "BatchHistory",
    "BatchTiles",
    "CapturedSpans",
    "Chart",
    "ClosureLanes",
    "DataPatch",
    "DeviceShares",
    "MetricLines",
    "PlacementTable",
    "ProcessMemory",
    "Rates",
    "ReductionBars",
    "RunComparison",
    "ServerTraffic",
    "StepTimeline",
    "Traffic",
    "TrafficRow",
    "data_patch",
    "loss_lines",
    "other_lines",
    "reduction_rows",
    "say_not_drawn",
    "theme",
    "traffic_row",
    "units",
]


C_contra = TypeVar("C_contra", contravariant=True)


class Chart(Protocol[C_contra]):
    """A chart of columns of one type, such as `Chart[DeviceColumns]`."""

    root: LayoutDOM
    """The Bokeh model to put on a page."""

    source: ColumnDataSource
    """Its main source."""

    def update(self, columns: C_contra) -> None:
        """Shows the newest columns."""


class DataPatch(TypedDict):
    """Bokeh's event `ColumnDataChanged`.

    Attributes:
      kind: `"ColumnDataChanged"`.
      model: Reference to the source.
      attr: `"data"`.
      data: All columns of the source, serialized.
      cols: None, since all columns change.
    """

    kind: Literal["ColumnDataChanged"]
    model: Ref
    attr: str
    data: dict[str, object]
    cols: list[str] | None


def data_patch(source: ColumnDataSource) -> DataPatch:
    """Serializes all data of a source, as Bokeh's server would send it.

    Args:
      source: A source of a chart.

    Returns:
      An event for BokehJS' `apply_json_patch` or for a `PATCH-DOC` message, with
      arrays in base64: it can be sent as one text.

    Example:
      >>> from distlab.charts import ProcessMemory, data_patch
      >>> patch = data_patch(ProcessMemory().source)
      >>> patch["kind"], patch["attr"]
      ('ColumnDataChanged', 'data')
    """
    return {
        "kind": "ColumnDataChanged",
        "model": source.ref,
        "attr": "data",
        "data": Serializer(deferred=False).serialize(dict(source.data)).content,
        "cols": None,
    }
