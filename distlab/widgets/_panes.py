"""The charts of a view, as JSON for a page: what they are once, then their data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bokeh.embed import json_item
from bokeh.models import BasicTicker, ColumnDataSource

from distlab.charts import (
    BatchTiles,
    Chart,
    DeviceShares,
    PlacementTable,
    Rates,
    ReductionBars,
    StepTimeline,
    data_patch,
)
from distlab.folds import Columns, Folds, part_of_batch, part_of_devices, part_of_placements

_MOST_TEXTS = 8


class Pane(NamedTuple):
    """One chart that a view may have.

    Attributes:
      columns: the fold whose columns it shows.
      make: makes it, of the size that fits a notebook.
      part: of very many devices or replicas, what there is room for.
    """

    columns: str
    make: Callable[[], Chart]
    part: Callable[[Columns], Columns] = dict


def _reductions() -> Chart:
    chart = ReductionBars(height=130)
    chart.root.xaxis.ticker = BasicTicker(desired_num_ticks=3)  # the bars are narrow here
    return chart


class _NarrowPlacement:
    """The table of variables for 600 pixels: its cells get the room of the texts beside them."""

    def __init__(self) -> None:
        self._table = PlacementTable(height=260)
        self.root, self.source = self._table.root, self._table.source
        self.root.right = []
        self.root.min_border_left, self.root.min_border_right = 90, 8

    def update(self, columns: Mapping[str, Any]) -> None:
        """Shows the newest columns; with many devices bytes show when one points at a cell."""
        self._table.update(columns)
        if len(columns["device"]) > _MOST_TEXTS:
            cells = dict(self.source.data)
            self.source.data = {**cells, "text": [""] * len(cells["text"])}


PANES = {
    "batches": Pane("batches", lambda: BatchTiles(height=330), part_of_batch),
    "devices": Pane("devices", lambda: DeviceShares(height=240, notes=False), part_of_devices),
    "reductions": Pane("reductions", _reductions),
    "placement": Pane("placement", _NarrowPlacement, part_of_placements),
    "rates": Pane("steps", lambda: Rates(height=200)),
    "timeline": Pane("timeline", lambda: StepTimeline(height=320)),
}
"""All charts, by the name that pages know them by."""


class Panes:
    """A view's charts, from top to bottom.

    Attributes:
      names: which they are.
      items: the `json_item` of each chart that ever had something to show, made
        when it first had.
    """

    def __init__(self, names: Sequence[str], batch: int | None = None) -> None:
        """Makes empty charts.

        Args:
          names: of `PANES`.
          batch: number of the batch to show, None for the newest.
        """
        self.names = tuple(names)
        self._batch = batch
        self._charts = {name: PANES[name].make() for name in self.names}
        self.items: dict[str, Any] = {}
        self._sources = {
            name: list(chart.root.select({"type": ColumnDataSource}))
            for name, chart in self._charts.items()
        }
        self._versions: dict[str, int] = {}

    def update(self, folds: Folds) -> dict[str, dict[str, Any]]:
        """Brings the charts up to date.

        Args:
          folds: all that is known of the run.

        Returns:
          For each chart that changed and has something to show, all of its data:
          the id of each source to the patch that replaces its data.
        """
        changed = {}
        for name, chart in self._charts.items():
            columns, _, part = PANES[name]
            version = folds.version(columns)
            if self._versions.get(name) == version:
                continue
            self._versions[name] = version
            of_batch = name == "batches"
            whole = folds.batch(self._batch) if of_batch else folds.columns(columns)
            chart.update(part(whole))
            if any(len(column) for column in chart.source.data.values()):
                self._add_item(name)
                changed[name] = self._patches(name)
        return changed

    def _add_item(self, name: str) -> None:
        if name not in self.items:
            self.items = {**self.items, name: dict(json_item(self._charts[name].root))}

    def _patches(self, name: str) -> dict[str, Any]:
        return {source.id: data_patch(source) for source in self._sources[name]}
