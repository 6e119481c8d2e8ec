"""What was combined across replicas, how often, and how many bytes."""

from __future__ import annotations

import numpy as np
from bokeh.layouts import column
from bokeh.models import (
    ColumnDataSource,
    DataRange1d,
    DataTable,
    HBar,
    HoverTool,
    InlineStyleSheet,
    Scatter,
    StringFormatter,
    TableColumn,
)

from distlab.charts._parts import (
    Columns,
    add_empty_text,
    bytes_formatter,
    draw,
    label_rows,
    new_figure,
    rows_range,
    set_empty,
)
from distlab.charts.theme import colour
from distlab.charts.units import bytes_text, count_text, duration_text, plain

_MOST_BARS = 10
_FEWEST_BARS = 5
_EMPTY = (
    "Nothing was combined across replicas yet.\n"
    "ctx.all_reduce(...) inside of a step and strategy.reduce(...) show here."
)
_TABLE_CSS = """
:host {
  --dl-row: var(--dl-line, #8c96a566);
  --dl-font: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
.slick-header-columns, .slick-header, .slick-header-column.ui-state-default,
.slick-row, .slick-row.odd, .slick-cell, .slick-viewport, .slick-pane, .grid-canvas {
  background: transparent !important; background-image: none !important;
  color: var(--dl-text, #767676) !important; border-color: var(--dl-row) !important;
  font-family: var(--dl-font) !important; font-size: 13px;
}
.slick-header-column, .slick-cell { border-left: none !important; border-right: none !important; }
.slick-row, .slick-row.odd { border: none !important; }
.slick-cell { border-top: none !important; border-bottom: 1px solid var(--dl-row) !important; }
.slick-header-column.ui-state-default { font-weight: 600; border-right: none !important; }
.slick-cell { border-right: none !important; padding-top: 5px; }
.slick-cell.l0, .slick-cell.l5 { color: var(--dl-strong, #767676) !important; }
.slick-cell.selected { background: #8c96a526 !important; }
"""
_COLUMNS = {
    "kind": ("kind", 110),
    "where": ("where", 130),
    "each": ("bytes", 80),
    "dtype": ("type", 70),
    "count_text": ("times", 70),
    "total_text": ("in all", 80),
    "participants": ("replicas", 75),
    "time": ("mean time", 90),
    "how": ("how", 200),
}


class ReductionBars:
    """Bars for the largest reductions, and a table of all of them.

    Reads the columns of `folds.Reductions`. Bytes are those of the operand on
    one replica, which is not what travels over a network.

    Attributes:
      root: a column of a figure and a table.
      source: one row for each kind of reduction, with texts for people.
    """

    def __init__(self, *, height: int = 230, table: bool = True) -> None:
        """Makes an empty chart.

        Args:
          height: pixels of the bars.
          table: whether the table is below them; it needs Bokeh's tables script.
        """
        names = (*_COLUMNS, "inside", "count", "bytes", "total")
        self.source = ColumnDataSource(data={name: [] for name in names}, name="reductions")
        bar_names = ("y", "room", "name", "total", "text", "color", "each", "count_text")
        self._bars = ColumnDataSource(data={name: [] for name in bar_names}, name="reduction_bars")
        plot = new_figure(
            "Bytes combined in all, on one replica", height=height,
            x_range=DataRange1d(start=0, range_padding=0.02),
        )  # fmt: skip
        bar = HBar(y="y", left=0, right="total", height=0.6, fill_color="color", line_color=None)
        bars = draw(plot, self._bars, bar)
        room = draw(plot, self._bars, Scatter(x=0, y="room", size=1, fill_alpha=0, line_alpha=0))
        plot.y_range = rows_range([bars, room], 0.02)
        label_rows(plot, self._bars, left="name", right="text")
        plot.min_border_left = 210
        plot.min_border_right = 170
        plot.xaxis.formatter = bytes_formatter()
        plot.add_tools(
            HoverTool(
                renderers=[bars],
                tooltips=[("", "@name"), ("each time", "@each"), ("times", "@count_text")],
            )
        )
        self._empty = add_empty_text(plot, _EMPTY)
        self.root = column(plot, *([self._table()] if table else []), sizing_mode="stretch_width")

    def _table(self) -> DataTable:
        plain_text = StringFormatter()
        return DataTable(
            source=self.source,
            columns=[
                TableColumn(field=field, title=title, width=width, formatter=plain_text)
                for field, (title, width) in _COLUMNS.items()
            ],
            index_position=None,
            reorderable=False,
            height=210,
            autosize_mode="none",
            row_height=32,
            sizing_mode="stretch_width",
            stylesheets=[InlineStyleSheet(css=_TABLE_CSS)],
        )

    def update(self, columns: Columns) -> None:
        """Shows the newest columns."""
        rows = len(columns["kind"])
        counts = [
            f"≥ {count_text(count)}" if at_least else count_text(count)
            for count, at_least in zip(columns["count"], columns["at_least"], strict=True)
        ]
        self.source.data = {
            "kind": [plain(kind) for kind in columns["kind"]],
            "where": [plain(where) for where in columns["where"]],
            "each": [bytes_text(size) for size in columns["bytes"]],
            "dtype": [plain(dtype, 24) for dtype in columns["dtype"]],
            "count_text": counts,
            "total_text": [bytes_text(size) for size in columns["total_bytes"]],
            "participants": list(columns["participants"]),
            "time": [
                "not timed" if inside else duration_text(mean / 1e3)
                for inside, mean in zip(columns["inside"], columns["mean_ms"], strict=True)
            ],
            "how": [plain(how) for how in columns["how"]],
            "inside": list(columns["inside"]),
            "count": list(columns["count"]),
            "bytes": list(columns["bytes"]),
            "total": list(columns["total_bytes"]),
        }
        self._update_bars(min(rows, _MOST_BARS))
        set_empty(self._empty, not rows)

    def _update_bars(self, rows: int) -> None:
        data = {name: list(self.source.data[name])[:rows] for name in self.source.data}
        self._bars.data = {
            "y": -np.arange(rows, dtype=np.float64),
            "room": np.full(rows, 0.5 - max(rows, _FEWEST_BARS)),
            "name": [
                f"{kind}, {plain(where, 30)}"
                for kind, where in zip(data["kind"], data["where"], strict=True)
            ],
            "total": data["total"],
            "text": [
                f"{total} = {times} x {each}"
                for total, times, each in zip(
                    data["total_text"], data["count_text"], data["each"], strict=True
                )
            ],
            "color": [colour(0) if inside else colour(1) for inside in data["inside"]],
            "each": data["each"],
            "count_text": data["count_text"],
        }
