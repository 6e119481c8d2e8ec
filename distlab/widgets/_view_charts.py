"""The charts of a view as JSON for a page: each chart once, then its data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bokeh import __version__ as bokeh_version
from bokeh.document import Document
from bokeh.embed.util import standalone_docs_json
from bokeh.models import ColumnDataSource
from bokeh.models.ui import UIElement

from distlab.charts import Chart, DataPatch, data_patch
from distlab.folds import Folds
from distlab.page.charts import CHARTS
from distlab.page.view import View as Choices


class ViewCharts:
    """A view's charts, from top to bottom."""

    def __init__(self, names: Sequence[str], batch: int | None = None) -> None:
        self.names = tuple(names)
        self.items: dict[str, object] = {}
        self._choices = Choices(batch=batch)
        self._charts = {name: _made(name) for name in self.names}
        self._sources = {
            name: list(chart.root.select({"type": ColumnDataSource}))
            for name, chart in self._charts.items()
        }
        self._shown: dict[str, object] = {}

    def update(self, folds: Folds) -> dict[str, dict[str, DataPatch]]:
        """Updates the charts."""
        changed = {}
        choices = self._choices
        if choices.batch is None and "batches" in self.names:
            choices = replace(choices, dataset=folds.columns("batches")["main"])
        for name, chart in self._charts.items():
            entry = CHARTS[name]
            state = entry.state(folds, choices)
            if entry.columns is None or (name in self._shown and self._shown[name] == state):
                continue
            self._shown[name] = state
            chart.update(entry.columns(folds, choices))
            if any(len(column) for column in chart.source.data.values()):
                self._add_item(name)
                changed[name] = self._patches(name)
        return changed

    def _add_item(self, name: str) -> None:
        if name not in self.items:
            self.items = {**self.items, name: json_of(self._charts[name].root)}

    def _patches(self, name: str) -> dict[str, DataPatch]:
        return {source.id: data_patch(source) for source in self._sources[name]}


def json_of(root: UIElement) -> dict[str, object]:
    """Returns what `Bokeh.embed.embed_item` shows: `bokeh.embed.json_item` of any thread.

    `json_item` reads the current document. A server's thread changes it for all threads, and
    leaves a closed one there when a callback raises.
    """
    document = Document()
    document.add_root(root)
    [json] = standalone_docs_json([document]).values()
    return {"target_id": None, "root_id": root.id, "doc": json, "version": bokeh_version}


def _made(name: str) -> Chart[Any]:
    make = CHARTS[name].notebook
    assert make is not None, f"no view has the chart {name!r}"
    return make()
