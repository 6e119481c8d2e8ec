"""The charts of a page and the sources by which page and script talk: no server in it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from bokeh.core.types import ID
from bokeh.model.util import collect_models
from bokeh.models import Column, ColumnDataSource, CustomJS, Div, Model

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
from distlab.page import event_search, programs, runs_table
from distlab.page.facts import Facts
from distlab.page.view import View

TILES_WIDTH: Final = 680
TRAFFIC_WIDTH: Final = 900
"""Pixels that a picture of a batch, and a drawing of a reduction, are wide at most."""

PICTURE_SECONDS: Final = 0.5
"""How long a picture of the newest batch stays at least."""

_TABLES: Final = {
    "programs": programs.NAMES,
    "events": event_search.NAMES,
    "runs": runs_table.NAMES,
}

_Part = Callable[[Columns, int | None], Columns]


class _Place(NamedTuple):
    """Where a chart is, and what it shows.

    Attributes:
      page: the page on which it is.
      height: its height in pixels, which the page keeps free for it.
      make: makes it, of a height.
      columns: the fold whose columns it shows; None for what a choice of the
        reader's decides, too.
      part: what it shows of very many devices, from the first one that was chosen.
    """

    page: str
    height: int
    make: Callable[..., Chart]
    columns: str | None = None
    part: _Part | None = None


def _tiles(*, height: int) -> charts.BatchTiles:
    made = charts.BatchTiles(height=height)
    made.root.max_width = TILES_WIDTH
    return made


def _traffic(*, height: int) -> charts.Traffic:
    made = charts.Traffic(height=height)
    made.root.max_width = TRAFFIC_WIDTH
    return made


_PLACES: Final = {
    "loss": _Place("overview", 320, charts.loss_lines, "metrics"),
    "newest": _Place("overview", 320, _tiles),
    "rates": _Place("overview", 210, charts.Rates, "steps"),
    "others": _Place("overview", 210, charts.other_lines, "metrics"),
    "batch": _Place("batches", 580, _tiles),
    "history": _Place("batches", 240, charts.BatchHistory, "batches"),
    "devices": _Place(
        "devices", 340, partial(charts.DeviceShares, notes=False), "devices", part_of_devices
    ),
    "captured": _Place("devices", 300, charts.CapturedSpans, "captures", part_of_captures),
    "memory": _Place("devices", 210, charts.ProcessMemory, "devices"),
    "steps": _Place("steps", 460, charts.StepTimeline, "timeline"),
    "reductions": _Place("reductions", 220, charts.ReductionBars, "reductions"),
    "one_reduction": _Place("reductions", 420, _traffic),
    "placement": _Place("placement", 440, charts.PlacementTable, "placement", part_of_placements),
    "two_runs": _Place("compare", 300, charts.RunComparison),
}
"""All charts, by the names that the page's HTML knows."""


class Board:
    """The charts that one reader has opened. It holds the version of each fold it has shown.

    A page's charts are made when it is first looked at: all together take seconds
    to make and to draw, and most readers open a page or two.

    Attributes:
      view: what the reader chose, as JSON; the page's script writes into it.
      facts: the page's texts, as JSON.
      sources: everything that a look may change: charts change by their data alone.
    """

    def __init__(self) -> None:
        """Makes a place for each chart."""
        self._tables = {
            name: ColumnDataSource(data={column: [] for column in columns}, name=f"{name}_rows")
            for name, columns in _TABLES.items()
        }
        # The page's script draws this table; the chart of reductions fills it.
        self._reductions = charts.reduction_rows()
        self._folds: Folds | None = None
        self._shown: dict[str, object] = {}
        self._drawn: dict[str, tuple[object, float]] = {}
        self._said = ""
        self._rows: dict[str, dict[str, list[str]]] = {}
        self.facts = ColumnDataSource(data={"json": ["{}"]}, name="facts")
        self.view = ColumnDataSource(data={"json": ["{}"]}, name="view")
        self.sources: list[ColumnDataSource] = []
        self._charts: dict[str, Chart] = {}
        self._numbered: set[Model] = set()
        self._places = {
            name: Column(name=name, sizing_mode="stretch_width", min_height=height)
            for name, (_, height, *_) in _PLACES.items()
        }
        self._bridge = self._make_bridge()
        self._number("page", [*self._places.values(), self._bridge])

    def roots(self) -> dict[str, Model]:
        """Returns the models to put into the page, by their names, which its HTML knows."""
        return {**self._places, "bridge": self._bridge}

    def chart(self, name: str) -> Any:
        """Returns a chart, which is made if its page was not looked at yet."""
        made = self._charts.get(name) or self._make(name)
        place = self._places[name]
        if not place.children:
            self._number(name, [made.root])
            place.children = [made.root]
        return made

    def _make(self, name: str) -> Chart:
        _, height, make, *_ = _PLACES[name]
        if name == "reductions":
            make = partial(make, source=self._reductions)
        self._charts[name] = make(height=height)
        return self._charts[name]

    def _make_bridge(self) -> Div:
        """An invisible model that holds what page and session tell each other."""
        bridge = Div(visible=False, name="bridge")
        held = {"facts": self.facts, "view": self.view, "rows": self._reductions}
        bridge.js_on_change("tags", CustomJS(args=held | self._tables, code=""))
        return bridge

    def _number(self, name: str, roots: Sequence[Model]) -> None:
        """Gives models the same ids on all boards: what is written for one fits them all."""
        for number, model in enumerate(collect_models(*roots)):
            if model not in self._numbered:
                model._id = ID(f"{name}-{number}")
                self._numbered.add(model)
                if isinstance(model, ColumnDataSource) and model is not self.view:
                    self.sources.append(model)

    def forget(self) -> None:
        """Forgets what was shown: the page was told other things meanwhile."""
        self._shown.clear()
        self._drawn.clear()
        self._said = ""
        self._rows.clear()

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
        for name, (where, _, _, columns, part) in _PLACES.items():
            if columns is not None and (everything or where == page):
                state = folds.version(columns), part and view.device
                self._once(name, state, self._show, name, part, folds, columns, view.device)
        if everything or page == "batches":
            version = folds.version("batches") if view.batch is None else None
            chosen = (view.batch, view.replica)
            if everything or self._may_draw("batch", chosen):
                self._once("batch", (version, *chosen), self._show_batch, folds, view)
        if everything or page == "reductions":
            known = (folds.version("reductions"), folds.version("programs"), view.reduction)
            self._once("one_reduction", known, self._show_traffic, folds, view.reduction)
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
        version = [tuple(run.version(name) for name in run.names) for run in runs]
        self._once("two_runs", version, self._show_comparison, runs, names)

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

    def _show(
        self, name: str, part: _Part | None, folds: Folds, columns: str, first: int | None
    ) -> None:
        """Shows columns on a chart, or of very many devices those that were chosen."""
        whole = folds.columns(columns)
        self.chart(name).update(part(whole, first) if part else whole)

    def _show_comparison(self, runs: tuple[Folds, Folds], names: tuple[str, str]) -> None:
        self.chart("two_runs").update(compare(*runs, names))

    def _show_batch(self, folds: Folds, view: View) -> None:
        self.chart("batch").update(part_of_batch(folds.batch(view.batch), view.replica))

    def _show_traffic(self, folds: Folds, row: int) -> None:
        shown = charts.traffic_row(
            folds.columns("reductions"),
            row,
            programs=folds.columns("programs"),
            devices=folds.columns("header")["replicas"],
        )
        self.chart("one_reduction").update(shown)

    def _show_newest(self, folds: Folds) -> None:
        self.chart("newest").update(part_of_batch(folds.batch()))

    def _show_programs(self, folds: Folds) -> None:
        self.show_rows("programs", programs.program_rows(folds.columns("programs")))
