"""Reductions across replicas: their counts and bytes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from bokeh.models import BasicTicker, ColumnDataSource, DataRange1d, GlyphRenderer, Segment
from bokeh.plotting import figure

from distlab.charts import _figure as fig
from distlab.charts.theme import colour
from distlab.folds import ReductionColumns
from distlab.text.bytes import bytes_text
from distlab.text.units import count_text, dtype_text, duration_text, plain

_MOST_BARS = 10
_FEWEST_BARS = 5
_MOST_AXES = 6
_FEWEST_AXES = 3
_LEAST_BARS = 180
"""Pixels that the bars have beside their names and amounts."""

_EMPTY = "No reductions.\nctx.all_reduce(...) inside a step and strategy.reduce(...) appear here."
_TEXTS = (
    *("kind", "what", "what_full", "where", "each", "dtype", "count_text", "total_text"),
    *("participants", "time", "how", "how_full"),
)
_MOST_HOW = 40
_NOTHING = "\u2013"


def reduction_rows() -> ColumnDataSource:
    """Returns an empty source for the texts of all reductions."""
    return fig.new_source("reduction_rows", *_TEXTS, "inside", "count", "bytes", "total")


class ReductionBars:
    """Bars for the largest reductions; its source has the texts of all of them.

    Bytes are those of the operand on one replica, not those that move over a network.

    Args:
      source: From `reduction_rows`, when the page has the table before the chart.

    Attributes:
      root: The figure.
      source: One row for each kind of reduction, as texts for a table below the bars,
        which have a source of their own.
    """

    def __init__(self, *, height: int = 230, source: ColumnDataSource | None = None) -> None:
        self.source = reduction_rows() if source is None else source
        self._bars = fig.new_source(
            "reduction_bars",
            *("y", "room", "name", "total", "text", "color", "each", "count_text"),
        )
        title = "Bytes combined in all, on one replica"
        plot, bars = _figure(title, self._bars, "total", height=height, sides=(210, 170))
        fig.add_hover(plot, bars, ("", "@name"), ("each time", "@each"), ("times", "@count_text"))
        self._empty = fig.add_empty_text(plot, _EMPTY)
        self.root = plot

    def update(self, columns: ReductionColumns) -> None:
        """Shows the newest `Folds.columns("reductions")`."""
        rows = len(columns["kind"])
        counts = [
            f"≥ {count_text(count)}" if at_least else count_text(count)
            for count, at_least in zip(columns["count"], columns["at_least"], strict=True)
        ]
        self.source.data = {
            "kind": [plain(kind) for kind in columns["kind"]],
            "what": list(map(_what, columns["what"], columns["largest"])),
            "what_full": [
                "\n".join(plain(value, 120) for value in values) for values in columns["values"]
            ],
            "where": [plain(where) for where in columns["where"]],
            "each": [bytes_text(size) for size in columns["bytes"]],
            "dtype": [plain(dtype_text(dtype), 24) for dtype in columns["dtype"]],
            "count_text": counts,
            "total_text": [bytes_text(size) for size in columns["total_bytes"]],
            "participants": [
                f"{group} along {plain(along)}" if along else str(count)
                for count, along, group in zip(
                    columns["participants"], columns["along"], columns["group"], strict=True
                )
            ],
            "time": [
                "not timed" if inside else duration_text(mean / 1e3)
                for inside, mean in zip(columns["inside"], columns["mean_ms"], strict=True)
            ],
            "how": [how_text(how) for how in columns["how"]],
            "how_full": ["\n".join(plain(line, 400) for line in how) for how in columns["how"]],
            "inside": list(columns["inside"]),
            "count": list(columns["count"]),
            "bytes": list(columns["bytes"]),
            "total": list(columns["total_bytes"]),
        }
        self._update_bars(columns, min(rows, _MOST_BARS))
        fig.set_empty(self._empty, not rows)

    def _update_bars(self, columns: ReductionColumns, rows: int) -> None:
        data = {name: list(self.source.data[name])[:rows] for name in self.source.data}
        self._bars.data = {
            "y": -np.arange(rows, dtype=np.float64),
            "room": np.full(rows, 0.5 - max(rows, _FEWEST_BARS)),
            "name": _names(columns, data),
            "total": data["total"],
            "text": [
                f"{total} = {times} \u00d7 {each}"
                for total, times, each in zip(
                    data["total_text"], data["count_text"], data["each"], strict=True
                )
            ],
            "color": [colour(0) if inside else colour(1) for inside in data["inside"]],
            "each": data["each"],
            "count_text": data["count_text"],
        }


class AxisBars:
    """Bars of the bytes that one device sends along the axes of the user's own mesh.

    Attributes:
      root: The figure.
      source: One row for each axis, or axes together: `y`, `name`, `sent`, `text`, `kinds`.
    """

    def __init__(self, *, height: int = 150) -> None:
        self.source = fig.new_source(
            "axis_bars", "y", "room", "name", "sent", "text", "kinds", "color"
        )
        title = "Bytes sent by one device, by mesh axis"
        plot, bars = _figure(title, self.source, "sent", height=height, sides=(130, 90))
        fig.add_hover(plot, bars, ("along", "@name"), ("sent", "@text"), ("by", "@kinds"))
        self._empty = fig.add_empty_text(plot, "Nothing was sent along an axis of a mesh.")
        self.root = plot

    def update(self, columns: ReductionColumns) -> None:
        """Shows the newest `Folds.columns("reductions")`."""
        sent: Counter[str] = Counter()
        kinds: dict[str, dict[str, None]] = {}
        for along, size, kind in zip(
            columns["along"], columns["sent_bytes"], columns["kind"], strict=True
        ):
            axes = along.partition(" shift ")[0]
            if axes:
                sent[axes] += size
                kinds.setdefault(axes, {})[plain(kind)] = None
        rows = sent.most_common(_MOST_AXES)
        self.source.data = {
            "y": -np.arange(len(rows), dtype=np.float64),
            "room": np.full(len(rows), 0.5 - max(len(rows), _FEWEST_AXES)),
            "name": [plain(axes, 24) for axes, _ in rows],
            "sent": [size for _, size in rows],
            "text": [bytes_text(size) for _, size in rows],
            "kinds": [", ".join(kinds[axes]) for axes, _ in rows],
            "color": [colour(0)] * len(rows),
        }
        fig.set_empty(self._empty, not rows)


def _figure(
    title: str, source: ColumnDataSource, column: str, *, height: int, sides: tuple[int, int]
) -> tuple[figure, GlyphRenderer]:
    """Returns a figure with a bar of bytes for each row of a source, and the bars."""
    x_range = DataRange1d(start=0, range_padding=0.02)
    plot = fig.new_figure(title, height=height, x_range=x_range)
    bars = fig.draw_bars(plot, source, 0, column, height=0.6)
    room = fig.draw(plot, source, Segment(x0=0, x1=0, y0="room", y1="room", line_alpha=0))
    plot.y_range = fig.range_of([bars, room], 0.02)
    fig.label_rows(plot, source, left="name", right="text")
    plot.min_border_left, plot.min_border_right = sides
    fig.yield_sides(plot, sum(sides) + _LEAST_BARS)
    plot.xaxis.formatter = fig.bytes_formatter()
    plot.xaxis.ticker = BasicTicker(desired_num_ticks=4)
    return plot, bars


def _what(what: str, largest: str) -> str:
    """Returns what is combined, with the largest array of several."""
    named = not largest or largest in what
    return plain(what if named else f"{what}, the largest {largest}", 100) or _NOTHING


def _names(columns: ReductionColumns, data: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns names of the bars: what is combined, or else where.

    Equal names get further details, as far as these distinguish them.
    """
    names = [
        f"{kind} of {plain(what, 40)}" if what else f"{kind}, {plain(where, 30)}"
        for kind, what, where in zip(data["kind"], columns["what"], data["where"], strict=False)
    ]
    along = [f"along {axes}" for axes in columns["along"]]
    for column in (along, columns["largest"], data["where"], data["how"], data["each"]):
        details: dict[str, set[str]] = {}
        for name, detail in zip(names, column, strict=False):
            details.setdefault(name, set()).add(detail)
        names = [
            f"{name}, {plain(detail, 30)}" if len(details[name]) > 1 else name
            for name, detail in zip(names, column, strict=False)
        ]
    return names


def how_text(how: Sequence[str]) -> str:
    """Returns a short text for the algorithm of a reduction."""
    shown = list(dict.fromkeys(_operation_and_line(source) for source in how if source))
    if not shown:
        return "not known"
    others = len(shown) - 1
    text = shown[0] if len(shown[0]) <= _MOST_HOW else f"…{shown[0][1 - _MOST_HOW :]}"
    return f"{text} and {others} other{'s' * (others > 1)}" if others else text


def _operation_and_line(source: str) -> str:
    operation, between, line = plain(source, 400).rpartition(" at ")
    inner = re.search(r"([\w.-]+)\)*$", operation.rpartition("/")[2])  # of transpose(jvp(add))
    return f"{inner[1] if inner else ''}{between}{line.rpartition('/')[2]}"
