"""The charts of an open page, and the sources by which its script and the session talk."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final

from bokeh.model.util import collect_models
from bokeh.models import Column, ColumnDataSource, CustomJS, Div, Model

from distlab.charts import Chart, ReductionBars, StepTimeline, reduction_rows, say_not_drawn
from distlab.charts.bokeh_internals import set_id
from distlab.folds import FoldName, Folds, compare
from distlab.page import (
    comparison_tables,
    divided,
    event_search,
    grids,
    programs,
    runs_table,
    servers,
    workers,
)
from distlab.page.charts import CHARTS
from distlab.page.view import View

COSTLY_SECONDS: Final = 0.5
"""The shortest time between two updates of a costly chart."""

TABLES: Final = {
    "programs": programs.NAMES,
    "events": event_search.NAMES,
    "runs": runs_table.NAMES,
    "workers": workers.NAMES,
    "links": workers.LINKS,
    "closures": servers.CLOSURES,
    "server_links": servers.LINKS,
    "pairs": divided.NAMES,
    **dict.fromkeys((*grids.DRAWN, *comparison_tables.DRAWN), ("html",)),
}
"""Columns of the tables that the page's script draws, by table."""

_TABLE_ROWS: Final[dict[str, tuple[str, FoldName, Callable[[Any], dict[str, list[str]]]]]] = {
    "programs": ("compile", "programs", programs.program_rows),
    "closures": ("servers", "coordination", servers.closure_rows),
    "server_links": ("servers", "coordination", servers.link_rows),
    "pairs": ("reductions", "reductions", divided.pair_rows),
    "placement_grids": ("placement", "placement", grids.placement_rows),
    "device_grids": ("devices", "devices", grids.device_rows),
}
"""The page, the fold and the rows of the tables of one fold."""


class Board:
    """The charts that one reader has opened, and the state that each of them shows.

    A page's charts are made when it is opened: all charts together take seconds to make
    and to draw, and most readers open a page or two.
    """

    def __init__(self) -> None:
        self._tables = {
            name: ColumnDataSource(data={column: [] for column in columns}, name=f"{name}_rows")
            for name, columns in TABLES.items()
        }
        # The page's script draws this table; the chart of reductions fills it.
        self._reductions = reduction_rows()
        self._folds: Folds | None = None
        self._shown: dict[str, object] = {}
        self._drawn: dict[str, tuple[View, float]] = {}
        self._facts_text = ""
        self._rows: dict[str, Mapping[str, list[str]]] = {}
        self.facts = ColumnDataSource(data={"json": ["{}"]}, name="facts")
        self.view = ColumnDataSource(data={"json": ["{}"]}, name="view")
        self.sources: list[ColumnDataSource] = []  # all that an update may change
        self._charts: dict[str, Chart[Any]] = {}
        self._numbered: set[Model] = set()
        self._places = {
            name: Column(name=name, sizing_mode="stretch_width", min_height=entry.height)
            for name, entry in CHARTS.items()
        }
        self._bridge = self._make_bridge()
        self._number("page", [*self._places.values(), self._bridge])

    def roots(self) -> dict[str, Model]:
        """Returns the models to put into the page, by the names that its HTML uses."""
        return {**self._places, "bridge": self._bridge}

    def timeline(self) -> StepTimeline:
        """Returns the chart of steps."""
        chart = self._chart("timeline")
        assert isinstance(chart, StepTimeline)
        return chart

    def chosen(self) -> View:
        """Returns the reader's choices."""
        return View.read(next(iter(self.view.data.get("json", [])), None))

    def update(self, folds: Folds, view: View, *, everything: bool = False) -> None:
        """Shows what changed since the last update."""
        if folds is not self._folds:
            self._folds = folds
            self._shown.clear()
            self._drawn.clear()
        page = None if everything else view.page
        document = self._bridge.document
        if document is None or all(name in self._charts for name in _charts_of(page)):
            failed = self._update_charts(folds, view, page)
        else:
            # Or Bokeh would walk through all models for each new chart: most of the time.
            with document.models.freeze():
                failed = self._update_charts(folds, view, page)
        chosen = folds.version("batches"), view.batch, view.dataset
        if page in {None, "batches"} and self._is_new("batch_grids", chosen):
            self.set_rows("batch_grids", grids.batch_rows(folds.batch(view.batch, view.dataset)))
        for table, (own_page, fold, rows) in _TABLE_ROWS.items():
            if page in {None, own_page} and self._is_new(table, folds.version(fold)):
                self.set_rows(table, rows(folds.columns(fold)))
        if failed is not None:
            raise failed

    def _update_charts(self, folds: Folds, view: View, page: str | None) -> Exception | None:
        """Shows what changed on the charts of a page, and returns why one can't be drawn."""
        first: Exception | None = None
        for name in _charts_of(page):
            entry = CHARTS[name]
            assert entry.columns is not None
            if page is None or not entry.costly or self._may_draw(name, view):
                columns = partial(entry.columns, folds, view)
                try:
                    self._show(name, entry.state(folds, view), columns)
                except Exception as error:  # noqa: BLE001 - raised when the others are drawn
                    if name in self._charts:
                        say_not_drawn(self._charts[name].root)
                    first = first or error
        return first

    def compare(self, runs: Sequence[Folds], names: Sequence[str]) -> None:
        """Shows runs side by side, when one of them changed."""
        versions = [tuple(run.version(name) for name in run.names) for run in runs]
        if self._is_new("compared_runs", versions):
            columns = compare(*runs, names=names)
            self._chart("compared_runs").update(columns)
            self.set_rows("setting_table", comparison_tables.setting_table(columns))
            self.set_rows("number_table", comparison_tables.number_table(columns))

    def set_facts(self, facts: Mapping[str, object]) -> None:
        """Sends the page its texts, when they changed."""
        text = json.dumps(facts)
        if text != self._facts_text:
            self._facts_text = text
            self.facts.data = {"json": [text]}

    def set_workers(self, folds: Folds, living: AbstractSet[int] | None) -> None:
        """Fills the tables of processes."""
        shown = folds.columns("workers")
        self.set_rows("workers", workers.worker_rows(shown, living))
        sent = folds.columns("programs"), folds.columns("reductions")
        self.set_rows("links", workers.link_rows(shown, *sent, folds.columns("steps")["steps"]))

    def set_rows(self, table: str, rows: Mapping[str, list[str]]) -> None:
        """Fills a table, when its texts changed."""
        if rows != self._rows.get(table):
            self._rows[table] = dict(rows)
            self._tables[table].data = dict(rows)

    def forget(self) -> None:
        """Forgets what the page shows, since it was updated by other means."""
        self._shown.clear()
        self._drawn.clear()
        self._rows.clear()
        self._facts_text = ""

    def _show(self, name: str, state: object, columns: Callable[[], object]) -> None:
        if self._is_new(name, state):
            self._chart(name).update(columns())

    def _is_new(self, name: str, state: object) -> bool:
        """Returns whether `state` is not yet shown, and notes it."""
        new = name not in self._shown or self._shown[name] != state
        self._shown[name] = state
        return new

    def _may_draw(self, name: str, view: View) -> bool:
        """Returns whether a costly chart is due, or the reader chose something else."""
        now = time.monotonic()
        before, last = self._drawn.get(name, (None, -math.inf))
        if view == before and now - last < COSTLY_SECONDS:
            return False
        self._drawn[name] = (view, now)
        return True

    def _chart(self, name: str) -> Chart[Any]:
        """Returns a chart; the first call puts it into its place."""
        made = self._charts.get(name)
        if made is None:
            height = CHARTS[name].height
            made = (
                ReductionBars(height=height, source=self._reductions)
                if name == "reductions"
                else CHARTS[name].make(height=height)
            )
            self._charts[name] = made
            self._number(name, [made.root])
            self._places[name].update(children=[made.root], min_height=None)
        return made

    def _make_bridge(self) -> Div:
        """Returns an invisible model that holds the sources of page and session."""
        bridge = Div(visible=False, name="bridge")
        held = {"facts": self.facts, "view": self.view, "rows": self._reductions}
        bridge.js_on_change("tags", CustomJS(args=held | self._tables, code=""))
        return bridge

    def _number(self, name: str, roots: Sequence[Model]) -> None:
        """Gives models the same ids on all boards, so that one message updates every page."""
        for number, model in enumerate(collect_models(*roots)):
            if model not in self._numbered:
                set_id(model, f"{name}-{number}")
                self._numbered.add(model)
                if isinstance(model, ColumnDataSource) and model is not self.view:
                    self.sources.append(model)


def _charts_of(page: str | None) -> list[str]:
    """Returns the charts that a run fills on a page, or on all with None."""
    return [
        name
        for name, entry in CHARTS.items()
        if entry.columns is not None and page in {None, entry.page}
    ]
