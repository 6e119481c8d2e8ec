"""Labels of rows, beside a figure: data of a source, as all that changes in a chart."""

from __future__ import annotations

from collections.abc import Sequence

from bokeh.models import ColumnDataSource, CustomJSTicker, CustomJSTickFormatter, LinearAxis
from bokeh.plotting import figure

from distlab.charts._figure import style_axis

_TICKS = "return Array.from(rows.get_column(place) ?? [])"
_LABEL = """
const places = Array.from(rows.get_column(place) ?? [])
const labels = rows.get_column(column) ?? []
return String(labels[places.indexOf(tick)] ?? "")
"""


def labelled_axis(rows: ColumnDataSource, place: str, column: str) -> LinearAxis:
    """Returns an axis with one label for each row of a source."""
    axis = LinearAxis()
    axis.ticker = CustomJSTicker(args={"rows": rows, "place": place}, major_code=_TICKS)
    axis.formatter = CustomJSTickFormatter(
        args={"rows": rows, "place": place, "column": column}, code=_LABEL
    )
    style_axis(axis)
    return axis


def label_rows(plot: figure, rows: ColumnDataSource, *, left: str, right: str = "") -> None:
    """Labels a figure's rows on both sides."""
    plot.left = [labelled_axis(rows, "y", left)]
    if right:
        plot.right = [labelled_axis(rows, "y", right)]
    plot.ygrid.visible = False


def thinned(labels: Sequence[str], most: int = 24) -> list[str]:
    """Returns labels with at most `most` of them kept, at equal distances, the others empty."""
    step = -(-len(labels) // most) or 1
    return [label if not place % step else "" for place, label in enumerate(labels)]
