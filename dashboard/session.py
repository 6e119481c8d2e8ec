"""One open page: its charts, and what it has shown so far."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import panel as pn
from bokeh.document import Document
from bokeh.models import ColumnDataSource, CustomJS, Div

from distlab import charts
from distlab.charts import Chart
from distlab_dashboard import facts
from distlab_dashboard.feed import Feed
from distlab_dashboard.page import page_template

PERIOD_MS: Final = 200
"""Milliseconds between two looks at the folds: five updates a second."""


class Session:
    """The charts of one page, kept up to date from the folds all pages share.

    It holds the version of each fold it has shown. Only its own periodic
    callback and the page's own messages touch its models.
    """

    def __init__(self, feed: Feed) -> None:
        """Makes the charts and shows what the folds know."""
        self._feed = feed
        self._reductions = charts.ReductionBars(height=220)
        self._charts: dict[str, tuple[str, Chart, str]] = {
            "loss": ("overview", charts.loss_lines(height=320), "metrics"),
            "rates": ("overview", charts.Rates(height=210), "steps"),
            "others": ("overview", charts.other_lines(height=210), "metrics"),
            "history": ("batches", charts.BatchHistory(height=240), "batches"),
            "devices": ("devices", charts.DeviceShares(height=340, notes=False), "devices"),
            "memory": ("devices", charts.ProcessMemory(height=210), "devices"),
            "reductions": ("reductions", self._reductions, "reductions"),
            "placement": ("placement", charts.PlacementTable(height=440), "placement"),
        }
        self._batch = charts.BatchTiles(height=580)
        self._newest = charts.BatchTiles(height=320)
        self._shown: dict[str, int] = {}
        self._batch_shown: tuple[int, int | None] = (-1, None)
        self._facts = ColumnDataSource(data={"json": ["{}"]}, name="facts")
        self._view = ColumnDataSource(
            data={"page": ["overview"], "batch": [None], "follow": [True]}, name="view"
        )
        self._look(everything=True)

    def template(self) -> pn.Template:
        """Returns the page with all charts in it."""
        template = page_template()
        for name, (_, chart, _) in self._charts.items():
            template.add_panel(name, pn.pane.Bokeh(chart.root, sizing_mode="stretch_width"))
        for name, tiles in (("batch", self._batch), ("newest", self._newest)):
            pane = pn.pane.Bokeh(tiles.root, sizing_mode="stretch_width", max_width=680)
            template.add_panel(name, pane)
        template.add_panel("bridge", pn.pane.Bokeh(self._bridge()))
        return template

    def _bridge(self) -> Div:
        """An invisible model that holds what page and session tell each other."""
        bridge = Div(visible=False, name="bridge")
        held = {"facts": self._facts, "view": self._view, "rows": self._reductions.source}
        bridge.js_on_change("tags", CustomJS(args=held, code=""))
        return bridge

    def attach(self, document: Document) -> None:
        """Begins to update the page, from callbacks of its own document."""
        self._view.on_change("data", self._on_view)
        document.add_periodic_callback(self._look, PERIOD_MS)

    def _on_view(self, attribute: str, old: Any, new: Any) -> None:
        del attribute, old, new
        self._look()

    def _look(self, *, everything: bool = False) -> None:
        """Shows what changed since the last look on the page that is open."""
        page = self._view.data["page"][0]
        for name, (home, chart, columns) in self._charts.items():
            if everything or home == page:
                self._once_a_version(name, columns, chart.update)
        if everything or page == "batches":
            self._look_at_batch()
        if everything or page == "overview":
            self._once_a_version("newest", "batches", lambda _: self._show_newest())
        self._say()

    def _once_a_version(self, name: str, columns: str, update: Callable[[Any], None]) -> None:
        version = self._feed.folds.version(columns)
        if self._shown.get(name) != version:
            self._shown[name] = version
            update(self._feed.folds.columns(columns))

    def _chosen_batch(self) -> int | None:
        return None if self._view.data["follow"][0] else self._view.data["batch"][0]

    def _look_at_batch(self) -> None:
        chosen = self._chosen_batch()
        wanted = (self._feed.folds.version("batches") if chosen is None else -2, chosen)
        if wanted != self._batch_shown:
            self._batch_shown = wanted
            self._batch.update(self._feed.folds.batch(chosen))

    def _show_newest(self) -> None:
        self._newest.update(self._feed.folds.batch())

    def _say(self) -> None:
        text = json.dumps(self._collect())
        if text != self._facts.data["json"][0]:
            self._facts.data = {"json": [text]}

    def _collect(self) -> facts.Facts:
        folds, feed = self._feed.folds, self._feed
        header = folds.columns("header")
        name = feed.path.name if feed.path else "this process"
        said = facts.run_facts(header, live=feed.live, caught_up=feed.caught_up, name=name)
        return {
            **said,
            **facts.loss_facts(header, lost=folds.lost),
            **facts.progress_facts(folds.columns("steps"), said["status"]),
            **facts.metric_facts(folds.columns("metrics")),
            **facts.device_facts(folds.columns("devices")),
            **facts.reduction_facts(folds.columns("reductions")),
            **facts.batch_facts(folds.batch(self._chosen_batch()), folds.columns("batches")),
        }


def show(feed: Feed) -> None:
    """Puts the page of a run into the current document.

    Args:
      feed: the run's feed, which all pages share.
    """
    session = Session(feed)
    document = pn.state.curdoc
    assert document is not None  # this is called to make a document
    with document.models.freeze():  # or Bokeh looks through all models once for each chart
        session.template().servable()
    document.title = "distlab"
    session.attach(document)
