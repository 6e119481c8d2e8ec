"""The charts of a page and the sources by which page and script talk: no server in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bokeh.models import ColumnDataSource, CustomJS, Div, Model

from distlab import charts
from distlab.charts import Chart
from distlab.folds import Columns, Folds
from distlab_dashboard.facts import Facts
from distlab_dashboard.programs import NAMES, program_rows

TILES_WIDTH = 680
"""Pixels that a picture of a batch is wide at most."""


class Board:
    """All charts of one page. It holds the version of each fold it has shown.

    Attributes:
      view: what the reader chose; the page's script writes into it.
    """

    def __init__(self) -> None:
        """Makes empty charts."""
        self._reductions = charts.ReductionBars(height=220)
        self._charts: dict[str, tuple[str, Chart, str]] = {
            "loss": ("overview", charts.loss_lines(height=320), "metrics"),
            "rates": ("overview", charts.Rates(height=210), "steps"),
            "others": ("overview", charts.other_lines(height=210), "metrics"),
            "history": ("batches", charts.BatchHistory(height=240), "batches"),
            "devices": ("devices", charts.DeviceShares(height=340, notes=False), "devices"),
            "captured": ("devices", charts.CapturedSpans(height=300), "captures"),
            "memory": ("devices", charts.ProcessMemory(height=210), "devices"),
            "reductions": ("reductions", self._reductions, "reductions"),
            "placement": ("placement", charts.PlacementTable(height=440), "placement"),
        }
        self._programs = ColumnDataSource(data={name: [] for name in NAMES}, name="program_rows")
        self._batch = charts.BatchTiles(height=580)
        self._newest = charts.BatchTiles(height=320)
        self._shown: dict[str, int] = {}
        self._batch_shown: tuple[int, int | None] = (-1, None)
        self._facts = ColumnDataSource(data={"json": ["{}"]}, name="facts")
        self.view = ColumnDataSource(
            data={"page": ["overview"], "batch": [None], "follow": [True], "capture": [0]},
            name="view",
        )

    def roots(self) -> dict[str, Model]:
        """Returns the models to put into the page, by their names in its HTML."""
        roots = {name: chart.root for name, (_, chart, _) in self._charts.items()}
        return {
            **roots,
            "batch": self._batch.root,
            "newest": self._newest.root,
            "bridge": self._bridge(),
        }

    def _bridge(self) -> Div:
        """An invisible model that holds what page and session tell each other."""
        bridge = Div(visible=False, name="bridge")
        held = {"facts": self._facts, "view": self.view, "rows": self._reductions.source}
        held["programs"] = self._programs
        bridge.js_on_change("tags", CustomJS(args=held, code=""))
        return bridge

    @property
    def chosen_batch(self) -> int | None:
        """The batch that the reader chose, None for the newest."""
        return None if self.view.data["follow"][0] else self.view.data["batch"][0]

    def look(self, folds: Folds, *, everything: bool = False) -> None:
        """Shows what changed since the last look, on the page that is open or on all.

        Args:
          folds: all that is known of the run.
          everything: whether pages that are not open are shown, too.
        """
        page = self.view.data["page"][0]
        for name, (home, chart, columns) in self._charts.items():
            if everything or home == page:
                self._once_a_version(folds, name, columns, chart.update)
        if everything or page == "batches":
            self._look_at_batch(folds)
        if everything or page == "compile":
            self._once_a_version(folds, "programs", "programs", self._show_programs)
        if everything or page == "overview":
            self._once_a_version(folds, "newest", "batches", lambda _: self._show_newest(folds))

    def say(self, facts: Facts) -> None:
        """Gives the page its texts, when they changed."""
        text = json.dumps(facts)
        if text != self._facts.data["json"][0]:
            self._facts.data = {"json": [text]}

    def _once_a_version(
        self, folds: Folds, name: str, columns: str, update: Callable[[Any], None]
    ) -> None:
        version = folds.version(columns)
        if self._shown.get(name) != version:
            self._shown[name] = version
            update(folds.columns(columns))

    def _look_at_batch(self, folds: Folds) -> None:
        chosen = self.chosen_batch
        wanted = (folds.version("batches") if chosen is None else -2, chosen)
        if wanted != self._batch_shown:
            self._batch_shown = wanted
            self._batch.update(folds.batch(chosen))

    def _show_programs(self, columns: Columns) -> None:
        rows = program_rows(columns)
        if rows != self._programs.data:
            self._programs.data = rows

    def _show_newest(self, folds: Folds) -> None:
        self._newest.update(folds.batch())
