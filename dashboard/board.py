"""The charts of a page and the sources by which page and script talk: no server in it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

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
from distlab_dashboard import event_search, programs, runs_table
from distlab_dashboard.facts import Facts
from distlab_dashboard.view import View

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

_Make = Callable[[], Chart]
_Part = Callable[[Columns, int | None], Columns]


def _tiles(height: int) -> charts.BatchTiles:
    made = charts.BatchTiles(height=height)
    made.root.max_width = TILES_WIDTH
    return made


def _traffic() -> charts.Traffic:
    made = charts.Traffic(height=420)
    made.root.max_width = TRAFFIC_WIDTH
    return made


_CHARTS: Final[dict[str, tuple[str, int, _Make]]] = {
    "loss": ("overview", 320, lambda: charts.loss_lines(height=320)),
    "newest": ("overview", 320, lambda: _tiles(320)),
    "rates": ("overview", 210, lambda: charts.Rates(height=210)),
    "others": ("overview", 210, lambda: charts.other_lines(height=210)),
    "batch": ("batches", 580, lambda: _tiles(580)),
    "history": ("batches", 240, lambda: charts.BatchHistory(height=240)),
    "devices": ("devices", 340, lambda: charts.DeviceShares(height=340, notes=False)),
    "captured": ("devices", 300, lambda: charts.CapturedSpans(height=300)),
    "memory": ("devices", 210, lambda: charts.ProcessMemory(height=210)),
    "steps": ("steps", 460, lambda: charts.StepTimeline(height=460)),
    "reductions": ("reductions", 220, lambda: charts.ReductionBars(height=220)),
    "one_reduction": ("reductions", 420, _traffic),
    "placement": ("placement", 440, lambda: charts.PlacementTable(height=440)),
    "two_runs": ("compare", 300, lambda: charts.RunComparison(height=300)),
}
"""The page on which a chart is, its height in pixels, and how it is made."""

_COLUMNS: Final[dict[str, tuple[str, _Part | None]]] = {
    "loss": ("metrics", None),
    "rates": ("steps", None),
    "others": ("metrics", None),
    "history": ("batches", None),
    "devices": ("devices", part_of_devices),
    "captured": ("captures", part_of_captures),
    "memory": ("devices", None),
    "steps": ("timeline", None),
    "reductions": ("reductions", None),
    "placement": ("placement", part_of_placements),
}
"""Whose columns a chart shows, and what it shows of very many devices."""


class Board:
    """All charts of one page. It holds the version of each fold it has shown.

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
            for name, (_, height, _) in _CHARTS.items()
        }
        # The table of reductions reads the rows of this chart's source.
        self._charts["reductions"] = _CHARTS["reductions"][2]()
        self._bridge = self._make_bridge()
        self._number("page", [*self._places.values(), self._bridge])

    def roots(self) -> dict[str, Model]:
        """Returns the models to put into the page, by their names, which its HTML knows."""
        return {**self._places, "bridge": self._bridge}

    def chart(self, name: str) -> Any:
        """Returns a chart, which is made if its page was not looked at yet."""
        if name not in self._charts:
            self._charts[name] = _CHARTS[name][2]()
        made, place = self._charts[name], self._places[name]
        if not place.children:
            self._number(name, [made.root])
            place.children = [made.root]
        return made

    def _make_bridge(self) -> Div:
        """An invisible model that holds what page and session tell each other."""
        bridge = Div(visible=False, name="bridge")
        rows = self._charts["reductions"].source
        held = {"facts": self.facts, "view": self.view, "rows": rows}
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
        for name, (columns, part) in _COLUMNS.items():
            if everything or _CHARTS[name][0] == page:
                state = folds.version(columns), part and view.device
                self._once(name, state, self._show, name, part, folds, columns, view.device)
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
