"""The charts of a view, as JSON for a page: what they are once, then their data."""

from __future__ import annotations

from typing import Any

from bokeh.core.serialization import Serializer
from bokeh.embed import json_item
from bokeh.models import ColumnDataSource

from distlab.charts import BatchTiles, Chart, DeviceShares, ReductionBars
from distlab.folds import Folds

NAMES = ("batches", "devices", "reductions")
"""The charts of a view, from top to bottom."""


class Panes:
    """A view's charts.

    Attributes:
      items: the `json_item` of each chart that ever had something to show, made
        when it first had.
    """

    def __init__(self, batch: int | None = None) -> None:
        """Makes empty charts.

        Args:
          batch: number of the batch to show, None for the newest.
        """
        self._batch = batch
        self._charts: dict[str, Chart] = {
            "batches": BatchTiles(height=330),
            "devices": DeviceShares(height=240, notes=False),
            "reductions": ReductionBars(height=130),
        }
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
        for name in NAMES:
            version = folds.version(name)
            if self._versions.get(name) == version:
                continue
            self._versions[name] = version
            columns = folds.batch(self._batch) if name == "batches" else folds.columns(name)
            self._charts[name].update(columns)
            if any(len(column) for column in self._charts[name].source.data.values()):
                self._add_item(name)
                changed[name] = self._patches(name)
        return changed

    def _add_item(self, name: str) -> None:
        if name not in self.items:
            self.items = {**self.items, name: dict(json_item(self._charts[name].root))}

    def _patches(self, name: str) -> dict[str, Any]:
        return {source.id: _patch(source) for source in self._sources[name]}


def _patch(source: ColumnDataSource) -> dict[str, Any]:
    """Returns Bokeh's own patch, as its server would send it, with data in base64."""
    return {
        "kind": "ColumnDataChanged",
        "model": source.ref,
        "attr": "data",
        "data": Serializer(deferred=False).serialize(dict(source.data)).content,
        "cols": None,
    }
