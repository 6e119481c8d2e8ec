"""The charts of a page and the sources by which page and script talk: no server in it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from bokeh.core.types import ID
from bokeh.model.util import collect_models
from bokeh.models import ColumnDataSource, CustomJS, Div, Model

from distlab import charts
from distlab.charts import Chart
from distlab.folds import (
    Columns,
    Folds,
    compare,
    part_of_batch,
    part_of_captures,
    part_of_devices,
    part_of_placements,
)
from distlab_dashboard import event_search, programs, runs_table
from distlab_dashboard.facts import Facts
from distlab_dashboard.view import View

TILES_WIDTH: Final = 680
"""Pixels that a picture of a batch is wide at most."""

PICTURE_SECONDS: Final = 0.5
"""How long a picture of the newest batch stays at least."""

_TABLES: Final = {
    "programs": programs.NAMES,
    "events": event_search.NAMES,
    "runs": runs_table.NAMES,
}

_Part = Callable[[Columns, int | None], Columns]


class Board:
    """All charts of one page. It holds the version of each fold it has shown.

    Attributes:
      view: what the reader chose, as JSON; the page's script writes into it.
      timeline: the chart of steps, which asks for more when it is zoomed into.
      facts: the page's texts, as JSON.
      sources: everything that a look may change: charts change by their data alone.
    """

    def __init__(self, *, comparing: bool = False) -> None:
        """Makes empty charts.

        Args:
          comparing: whether there are two runs to compare; their charts take a
            fifth of the time that a page takes to make.
        """
        self.timeline = charts.StepTimeline(height=460)
        self._reductions = charts.ReductionBars(height=220)
        self._charts: dict[str, tuple[str, Chart, str, _Part | None]] = {
            "loss": ("overview", charts.loss_lines(height=320), "metrics", None),
            "rates": ("overview", charts.Rates(height=210), "steps", None),
            "others": ("overview", charts.other_lines(height=210), "metrics", None),
            "history": ("batches", charts.BatchHistory(height=240), "batches", None),
            "devices": (
                *("devices", charts.DeviceShares(height=340, notes=False), "devices"),
                part_of_devices,
            ),
            "captured": (
                *("devices", charts.CapturedSpans(height=300), "captures"),
                part_of_captures,
            ),
            "memory": ("devices", charts.ProcessMemory(height=210), "devices", None),
            "steps": ("steps", self.timeline, "timeline", None),
            "reductions": ("reductions", self._reductions, "reductions", None),
            "placement": (
                *("placement", charts.PlacementTable(height=440), "placement"),
                part_of_placements,
            ),
        }
        self._tables = {
            name: ColumnDataSource(data={column: [] for column in columns}, name=f"{name}_rows")
            for name, columns in _TABLES.items()
        }
        self._batch = charts.BatchTiles(height=580)
        self._newest = charts.BatchTiles(height=320)
        self._batch.root.max_width = self._newest.root.max_width = TILES_WIDTH
        self._traffic = charts.Traffic(height=420)
        self._comparison = charts.RunComparison(height=300) if comparing else None
        self._folds: Folds | None = None
        self._shown: dict[str, object] = {}
        self._drawn: dict[str, tuple[object, float]] = {}
        self._said = ""
        self._rows: dict[str, dict[str, list[str]]] = {}
        self.facts = ColumnDataSource(data={"json": ["{}"]}, name="facts")
        self.view = ColumnDataSource(data={"json": ["{}"]}, name="view")
        self._roots = self._make_roots()
        models = _numbered(list(self._roots.values()))
        self.sources = [
            one for one in models if isinstance(one, ColumnDataSource) and one is not self.view
        ]

    def roots(self) -> dict[str, Model]:
        """Returns the models to put into the page, by their names in its HTML."""
        return dict(self._roots)

    def forget(self) -> None:
        """Forgets what was shown: the page was told other things meanwhile."""
        self._shown.clear()
        self._drawn.clear()
        self._said = ""
        self._rows.clear()

    def _make_roots(self) -> dict[str, Model]:
        roots = {name: chart.root for name, (_, chart, *_) in self._charts.items()}
        return {
            **roots,
            "batch": self._batch.root,
            "newest": self._newest.root,
            "one_reduction": self._traffic.root,
            "two_runs": self._comparison.root if self._comparison else Div(visible=False),
            "bridge": self._bridge(),
        }

    def _bridge(self) -> Div:
        """An invisible model that holds what page and session tell each other."""
        bridge = Div(visible=False, name="bridge")
        held = {"facts": self.facts, "view": self.view, "rows": self._reductions.source}
        bridge.js_on_change("tags", CustomJS(args=held | self._tables, code=""))
        return bridge

    def chosen(self) -> View:
        """Returns what the reader chose."""
        return View.read(self.view.data.get("json", [""])[0])

    def look(self, folds: Folds, view: View, *, everything: bool = False) -> None:
        """Shows what changed since the last look, on the page that is open or on all.

        Args:
          folds: what is known of the run at the moment that is shown.
          view: what the reader chose.
          everything: whether pages that are not open are shown, too.
        """
        if folds is not self._folds:
            self._folds = folds
            self._shown.clear()
            self._drawn.clear()
        page = view.page
        for name, (home, chart, columns, part) in self._charts.items():
            if everything or home == page:
                state = folds.version(columns), part and view.device
                self._once(name, state, _show, chart, part, folds, columns, view.device)
        if everything or page == "batches":
            version = folds.version("batches") if view.batch is None else None
            chosen = (view.batch, view.replica)
            if everything or self._may_draw("batch", chosen):
                self._once("batch", (version, *chosen), self._show_batch, folds, view)
        if everything or page == "reductions":
            known = (folds.version("reductions"), folds.version("programs"), view.reduction)
            self._once("traffic", known, self._show_traffic, folds, view.reduction)
        if everything or page == "compile":
            self._once("programs", folds.version("programs"), self._show_programs, folds)
        if everything or (page == "overview" and self._may_draw("newest", None)):
            self._once("newest", folds.version("batches"), self._show_newest, folds)

    def compare(self, runs: tuple[Folds, Folds], names: tuple[str, str]) -> None:
        """Shows two runs side by side, when one of them changed.

        Args:
          runs: all that is known of each.
          names: what to call them.
        """
        chart = self._comparison
        if chart is not None:
            version = [tuple(run.version(name) for name in run.names) for run in runs]
            self._once("comparison", version, lambda: chart.update(compare(*runs, names)))

    def say(self, facts: Facts) -> None:
        """Gives the page its texts, when they changed."""
        text = json.dumps(facts)
        if text != self._said:
            self._said = text
            self.facts.data = {"json": [text]}

    def show_rows(self, table: str, rows: Mapping[str, list[str]]) -> None:
        """Fills a table, when its texts changed.

        Args:
          table: its name.
          rows: texts by column.
        """
        if rows != self._rows.get(table):
            self._rows[table] = dict(rows)
            self._tables[table].data = dict(rows)

    def _may_draw(self, name: str, chosen: object) -> bool:
        """Whether a picture of a batch may change again, unless another one was chosen.

        Nobody sees more than two of them a second, and they are what costs most.
        """
        now = time.monotonic()
        before, last = self._drawn.get(name, (None, -math.inf))
        if chosen == before and now - last < PICTURE_SECONDS:
            return False
        self._drawn[name] = (chosen, now)
        return True

    def _once(self, name: str, state: object, update: Callable[..., None], *given: Any) -> None:
        """Updates what does not show this state yet."""
        if self._shown.get(name, self) != state:
            self._shown[name] = state
            update(*given)

    def _show_batch(self, folds: Folds, view: View) -> None:
        self._batch.update(part_of_batch(folds.batch(view.batch), view.replica))

    def _show_traffic(self, folds: Folds, row: int) -> None:
        shown = charts.traffic_row(
            folds.columns("reductions"),
            row,
            programs=folds.columns("programs"),
            devices=folds.columns("header")["replicas"],
        )
        self._traffic.update(shown)

    def _show_newest(self, folds: Folds) -> None:
        self._newest.update(part_of_batch(folds.batch()))

    def _show_programs(self, folds: Folds) -> None:
        self.show_rows("programs", programs.program_rows(folds.columns("programs")))


def _show(chart: Chart, part: _Part | None, folds: Folds, columns: str, first: int | None) -> None:
    """Shows columns on a chart, or of very many devices those that were chosen."""
    whole = folds.columns(columns)
    chart.update(part(whole, first) if part else whole)


def _numbered(roots: list[Model]) -> list[Model]:
    """Gives models the same ids on all boards, so that what is written for one fits them all."""
    models = collect_models(*roots)
    for number, model in enumerate(models):
        model._id = ID(f"b{number}")
    return models
