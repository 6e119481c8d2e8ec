"""What the charts' figures have in common.

All that changes while a chart lives is in the data of its sources, also the
labels of its axes: so a chart that was embedded somewhere is updated by
replacing its sources' data, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.models import (
    ColumnDataSource,
    CustomJSTicker,
    CustomJSTickFormatter,
    DataRange1d,
    GlyphRenderer,
    LabelSet,
    LinearAxis,
    Segment,
)
from bokeh.plotting import figure

from distlab.charts.theme import FAINT, FONT, INK

_ROWS = "return Array.from(rows.get_column(place) ?? [])"
_LABEL = """
const places = Array.from(rows.get_column(place) ?? [])
const labels = rows.get_column(column) ?? []
return String(labels[places.indexOf(tick)] ?? "")
"""
_BYTES = """
const units = ["B", "kB", "MB", "GB", "TB"]
let size = tick, unit = 0
while (Math.abs(size) >= 1000 && unit < 4) { size /= 1000; unit += 1 }
return `${Number(size.toPrecision(3))} ${units[unit]}`
"""


def new_figure(
    title: str, *, x_label: str = "", y_label: str = "", height: int = 300, **options: Any
) -> figure:
    """Returns an empty figure in the charts' style.

    Args:
      title: what it shows.
      x_label: label of the x axis with its unit.
      y_label: label of the y axis with its unit.
      height: pixels.
      **options: for `bokeh.plotting.figure`.
    """
    options.setdefault("sizing_mode", "stretch_width")
    options.setdefault("tools", "")
    plot = figure(
        title=title,
        height=height,
        min_width=200,
        toolbar_location=None,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        x_axis_label=x_label or None,
        y_axis_label=y_label or None,
        **options,
    )
    plot.title.text_font = FONT
    plot.title.text_font_size = "14px"
    plot.title.text_font_style = "bold"
    plot.title.text_color = INK
    plot.grid.grid_line_color = FAINT
    plot.grid.grid_line_alpha = 0.5
    for axis in plot.axis:
        style_axis(axis)
    return plot


def draw(plot: figure, source: ColumnDataSource, glyph: Any, *, hover: Any = None) -> GlyphRenderer:
    """Draws a source's rows with a glyph, with as few Bokeh models as that takes.

    Args:
      plot: the figure.
      source: the rows.
      glyph: how each row is drawn.
      hover: how a row under the mouse is drawn, when that differs.
    """
    renderer = GlyphRenderer(data_source=source, glyph=glyph, hover_glyph=hover)
    plot.renderers.append(renderer)
    return renderer


def style_axis(axis: Any) -> None:
    """Gives an axis the charts' fonts and quiet lines."""
    axis.axis_line_color = None
    axis.major_tick_line_color = None
    axis.minor_tick_line_color = None
    axis.axis_label_text_font = FONT
    axis.axis_label_text_font_size = "12px"
    axis.axis_label_text_font_style = "normal"
    axis.axis_label_text_color = INK
    axis.major_label_text_font = FONT
    axis.major_label_text_font_size = "12px"
    axis.major_label_text_color = INK


def labelled_axis(rows: ColumnDataSource, place: str, column: str) -> LinearAxis:
    """Returns an axis with one label for each row of a source.

    Args:
      rows: the source.
      place: its column of coordinates.
      column: its column of labels.
    """
    axis = LinearAxis()
    axis.ticker = CustomJSTicker(args={"rows": rows, "place": place}, major_code=_ROWS)
    axis.formatter = CustomJSTickFormatter(
        args={"rows": rows, "place": place, "column": column}, code=_LABEL
    )
    style_axis(axis)
    return axis


def thinned(labels: Sequence[str], most: int = 24) -> list[str]:
    """Returns labels with only every second, third, ... of them when there are too many."""
    step = -(-len(labels) // most) or 1
    return [label if not place % step else "" for place, label in enumerate(labels)]


def label_rows(plot: figure, rows: ColumnDataSource, *, left: str, right: str = "") -> None:
    """Labels a figure's rows on the left, and on the right with what they amount to.

    Args:
      plot: a figure whose rows lie at the source's column `y`.
      rows: the source.
      left: its column of names.
      right: its column of amounts, when there is one.
    """
    plot.left = [labelled_axis(rows, "y", left)]
    if right:
        plot.right = [labelled_axis(rows, "y", right)]
    plot.ygrid.visible = False


def bytes_formatter() -> CustomJSTickFormatter:
    """Returns a formatter that writes an axis's bytes as kB, MB and so on."""
    return CustomJSTickFormatter(code=_BYTES)


def add_empty_text(plot: figure, text: str) -> ColumnDataSource:
    """Lets a figure say what to do while it has nothing to show.

    Args:
      plot: the figure.
      text: what it says; lines are broken at newlines.

    Returns:
      The text's source: see `set_empty`.
    """
    source = ColumnDataSource(data={"x": [], "y": [], "text": []}, tags=[text, _text_bottom(plot)])
    set_empty(source, empty=True)
    # Something to take ranges from, or Bokeh warns that it found none.
    renderer = draw(plot, source, Segment(x0=0, y0=0, x1=1, y1=1, line_alpha=0))
    for axis_range in (plot.x_range, plot.y_range):
        if isinstance(axis_range, DataRange1d) and axis_range.renderers:  # others follow all
            axis_range.renderers = [*axis_range.renderers, renderer]
    plot.add_layout(
        LabelSet(
            x="x", y="y", text="text", source=source, x_units="screen", y_units="screen",
            text_color=INK, text_font=value(FONT), text_font_size="13px", text_baseline="bottom",
        )
    )  # fmt: skip
    return source


def set_empty(source: ColumnDataSource, empty: bool) -> None:
    """Shows or hides what `add_empty_text` added."""
    if empty != bool(len(source.data["x"])):
        text, bottom = source.tags
        source.data = (
            {"x": [16], "y": [bottom], "text": [text]} if empty else {"x": [], "y": [], "text": []}
        )


def _text_bottom(plot: figure) -> int:
    """Pixels from the bottom of a figure's frame to a text near its top."""
    return max(16, int(plot.height) - 150)


def rows_range(renderers: list[Any], padding: float = 0.02) -> DataRange1d:
    """Returns a range that follows these renderers and nothing else."""
    return DataRange1d(renderers=renderers, range_padding=padding)


def finite(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns values as float64 with infinity made NaN: a range can't hold it."""
    numbers = np.asarray(values, np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)
