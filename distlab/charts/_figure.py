"""Figures in the charts' style.

While a chart lives, only the data of its sources changes, the labels of its axes
included: replacing that data updates a chart wherever it is embedded.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from bokeh.core.properties import value
from bokeh.layouts import row
from bokeh.models import (
    Axis,
    ColumnDataSource,
    CustomJS,
    CustomJSTicker,
    CustomJSTickFormatter,
    DataRange1d,
    Glyph,
    GlyphRenderer,
    HBar,
    HoverTool,
    InlineStyleSheet,
    Label,
    LabelSet,
    Legend,
    LegendItem,
    Line,
    LinearAxis,
    Model,
    MultiLine,
    Row,
    Segment,
    Text,
    VArea,
)
from bokeh.plotting import figure

from distlab.charts.theme import FAINT, FONT, INK, colour
from distlab.folds.arrays import Floats

_LEGEND_CSS = f"""
[class*=label] {{ color: var(--dl-text, {INK}) !important; }}
:host {{ max-width: 100%; margin-top: -7px; }}
[class*=grid] {{ display: flex; flex-wrap: wrap; column-gap: 14px !important; width: auto; }}
"""
_BYTES = """
const units = ["B", "kB", "MB", "GB", "TB"]
let size = tick, unit = 0
while (Math.abs(size) >= 1000 && unit < 4) { size /= 1000; unit += 1 }
return `${Number(size.toPrecision(3))} ${units[unit]}`
"""
NUMBER = """
const number = (tick, ticks) => {
  if (tick == 0) return "0"
  const most = Math.max(...ticks.map(Math.abs)), thousands = most >= 1e6 ? 2 : most >= 1e4 ? 1 : 0
  const gap = (ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : most || 1) / 1000 ** thousands
  const digits = Math.max(0, Math.min(12, Math.ceil(-Math.log10(gap) - 1e-9)))
  return Number((tick / 1000 ** thousands).toFixed(digits)) + ["", "k", "M"][thousands]
}
"""
"""Writes a tick of an axis with the digits that its ticks need."""

_TICKS = "return Array.from(rows.get_column(place) ?? [])"
_LABEL = """
const places = Array.from(rows.get_column(place) ?? [])
const labels = rows.get_column(column) ?? []
const label = String(labels[places.indexOf(tick)] ?? "")
const narrow = plot && !plot.properties.outer_width.is_unset && plot.outer_width < least
return narrow && label.length > 20 ? "\u2026" + label.slice(-19) : label
"""

_YIELD = """
if (plot.properties.outer_width.is_unset) return
const cells = columns === null ? 0 : Math.min(columns.get_length() ?? 0, most)
const narrow = plot.outer_width < Math.max(least, left + right + cell * cells)
for (const axis of plot.right) axis.setv({visible: !narrow}, {sync: false})
const room = plot.outer_width - (narrow ? 120 : left + right)
const ticks = Math.max(1, Math.min(4, Math.floor(room / 90)))  // or half as many more
for (const axis of plot.below) axis.ticker.setv({desired_num_ticks: ticks}, {sync: false})
plot.setv({min_border_left: narrow ? 0 : left, min_border_right: narrow ? 8 : right}, {sync: false})
"""


_MOST_COLUMNS = 38
"""Characters of a line of text inside a chart, as many as a phone has room for."""


def new_figure(title: str, *, x_label: str = "", height: int = 300, **options: Any) -> figure:
    """Returns an empty figure in the charts' style."""
    options.setdefault("sizing_mode", "stretch_width")
    plot = figure(
        height=height,
        min_width=200,
        tools="",
        toolbar_location=None,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        x_axis_label=x_label or None,
        **options,
    )
    # Bokeh's own title begins where the axis begins, not at the left edge.
    words = Label(
        text=title, x=0, y=0, x_units="canvas", y_units="screen", text_font=FONT,
        text_font_size="14px", text_font_style="bold", text_color=INK, padding=(0, 0, 0, 8),
    )  # fmt: skip
    plot.add_layout(words, "above")
    plot.grid.grid_line_color = FAINT
    plot.grid.grid_line_alpha = 0.5
    for axis in plot.axis:
        style_axis(axis)
    return plot


def style_axis(axis: Axis) -> None:
    """Sets an axis's fonts and removes its lines."""
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


def draw(
    plot: figure, source: ColumnDataSource, glyph: Glyph, *, hover: Glyph | None = None
) -> GlyphRenderer:
    """Draws each row of a source as a glyph, with the fewest Bokeh models."""
    renderer = GlyphRenderer(data_source=source, glyph=glyph, hover_glyph=hover)
    plot.renderers.append(renderer)
    return renderer


def draw_bars(
    plot: figure,
    source: ColumnDataSource,
    left: float | str,
    right: float | str,
    *,
    height: float | str = 0.62,
    color: Any = "color",
    line: str | None = None,
    **options: Any,
) -> GlyphRenderer:
    """Draws each row of a source as a horizontal bar."""
    bar = HBar(
        y="y", left=left, right=right, height=height, fill_color=color, line_color=line, **options
    )
    return draw(plot, source, bar)


def draw_track(
    plot: figure,
    source: ColumnDataSource,
    right: float | str,
    *,
    left: float | str = 0,
    height: float | str = 0.62,
) -> GlyphRenderer:
    """Draws each row of a source as the faint ground of other bars."""
    return draw_bars(plot, source, left, right, height=height, color=FAINT, fill_alpha=0.16)


def draw_text(
    plot: figure,
    source: ColumnDataSource,
    text: str = "text",
    *,
    x: float | str = "x",
    color: str = INK,
    size: str = "12px",
    **options: Any,
) -> GlyphRenderer:
    """Writes a text of each row of a source, its middle at the row's height."""
    glyph = Text(
        x=x, y="y", text=text, text_color=color, text_font=value(FONT), text_font_size=size,
        text_baseline="middle", **options,
    )  # fmt: skip
    return draw(plot, source, glyph)


def add_hover(plot: figure, renderer: GlyphRenderer, *tooltips: tuple[str, str]) -> None:
    """Adds a tooltip to what a renderer draws."""
    plot.add_tools(HoverTool(renderers=[renderer], tooltips=list(tooltips)))


def draw_curves(
    plot: figure,
    source: ColumnDataSource,
    x: str,
    y: str,
    *,
    tooltips: Sequence[tuple[str, str]],
    dash: str = "",
) -> GlyphRenderer:
    """Draws each row of a source as a curve that names itself under the mouse."""
    lines = MultiLine(xs=x, ys=y, line_color="color", line_width=2, line_join="round")
    if dash:
        lines.line_dash = dash
    curves = draw(plot, source, lines)
    plot.add_tools(
        HoverTool(renderers=[curves], line_policy="nearest", tooltips=[("", "@name"), *tooltips])
    )
    return curves


def amount_figure(
    title: str, *, height: int, padding: float = 0.1, x_label: str = "seconds since the run began"
) -> figure:
    """Returns an empty figure for amounts over time."""
    x_range, y_range = DataRange1d(range_padding=0.01), DataRange1d(start=0, range_padding=padding)
    plot = new_figure(title, x_label=x_label, height=height, x_range=x_range, y_range=y_range)
    plot.yaxis.formatter = number_formatter()
    return plot


def track_figure(
    title: str, rows: ColumnDataSource, x_label: str, *, height: int, thick: float, right: str
) -> figure:
    """Returns a figure with a labelled faint track for each row of a source."""
    plot = new_figure(title, x_label=x_label, height=height)
    track = draw_track(plot, rows, "length", height=thick)
    plot.y_range, plot.x_range = range_of([track], 0.06), range_of([track], 0)
    label_rows(plot, rows, left="label", right=right)
    return plot


def area_figure(
    title: str,
    source: ColumnDataSource,
    column: str,
    *,
    number: int,
    padding: float,
    tooltips: Sequence[tuple[str, str]],
    height: int,
) -> figure:
    """Returns a figure with one amount over time: a line, and the area below it."""
    plot = amount_figure(title, height=height, padding=padding)
    ink = colour(number)
    draw(plot, source, VArea(x="time", y1=0, y2=column, fill_color=ink, fill_alpha=0.16))
    line = draw(
        plot, source, Line(x="time", y=column, line_color=ink, line_width=2, line_join="round")
    )
    plot.add_tools(
        HoverTool(renderers=[line], mode="vline", tooltips=[("at", "@time{0.0} s"), *tooltips])
    )
    return plot


def add_legend(plot: figure, curves: GlyphRenderer) -> None:
    """Adds a legend with the column `name` of the curves' source, above them in rows."""
    legend = Legend(
        items=[LegendItem(label={"field": "name"}, renderers=[curves])],
        location="top_left",
        orientation="horizontal",
        background_fill_color=None,
        border_line_color=None,
        label_text_color=INK,
        label_text_font=FONT,
        label_text_font_size="12px",
        margin=4,
        padding=0,
        spacing=0,
        # A legend reads its colour once, when it is made: the page's theme comes by CSS.
        stylesheets=[InlineStyleSheet(css=_LEGEND_CSS)],
    )
    plot.above.insert(0, legend)  # the title stays above it


def bytes_formatter() -> CustomJSTickFormatter:
    """Returns a formatter that writes an axis's bytes as kB, MB and so on."""
    return CustomJSTickFormatter(code=_BYTES)


def number_formatter() -> CustomJSTickFormatter:
    """Returns a formatter that writes an axis's numbers as 500, 12.5k or 2M."""
    return CustomJSTickFormatter(code=NUMBER + "return number(tick, ticks)")


def range_of(renderers: Sequence[GlyphRenderer], padding: float = 0.02) -> DataRange1d:
    """Returns a range that contains what these renderers draw, and nothing else."""
    return DataRange1d(renderers=list(renderers), range_padding=padding)


def beside(*plots: figure) -> Row:
    """Returns figures in a row; where there is no room, one below the other."""
    return row(*plots, sizing_mode="stretch_width", styles={"flex-wrap": "wrap"})


CELL_PIXELS: Final = 56
"""Width of a cell with an amount as text."""


def yield_sides(
    plot: figure, least: int, columns: ColumnDataSource | None = None, most: int = 0
) -> None:
    """Gives the room beside the rows to the rows where a figure is narrower than `least` pixels.

    The texts on the right are hidden then, and of the names on the left 19 letters stay. The texts
    are hidden, too, where the room is too narrow for a cell for each of `columns`, or for the
    `most` that have one.
    """
    for axis in plot.left:
        axis.formatter.args = {**axis.formatter.args, "plot": plot, "least": least}
    callback = CustomJS(
        args={
            "plot": plot, "least": least, "columns": columns, "most": most, "cell": CELL_PIXELS,
            "left": plot.min_border_left or 0, "right": plot.min_border_right or 0,
        },
        code=_YIELD,
    )  # fmt: skip
    plot.js_on_change("outer_width", callback)
    if columns is not None:
        columns.js_on_change("data", callback)


def labelled_axis(rows: ColumnDataSource, place: str, column: str) -> LinearAxis:
    """Returns an axis with one label for each row of a source."""
    axis = LinearAxis()
    axis.ticker = CustomJSTicker(args={"rows": rows, "place": place}, major_code=_TICKS)
    axis.formatter = CustomJSTickFormatter(
        args={"rows": rows, "place": place, "column": column, "plot": None, "least": 0}, code=_LABEL
    )
    style_axis(axis)
    return axis


def label_rows(plot: figure, rows: ColumnDataSource, *, left: str, right: str = "") -> None:
    """Labels a figure's rows on both sides."""
    plot.left = [labelled_axis(rows, "y", left)]
    if right:
        plot.right = [labelled_axis(rows, "y", right)]
    plot.ygrid.visible = False


def on_two_lines(device: str) -> str:
    """Returns the name of a worker's device for places that are narrow."""
    return "\n".join(device.rsplit(" ", 1))


def thinned(labels: Sequence[str], most: int = 24) -> list[str]:
    """Returns labels with at most `most` of them kept, at equal distances, the others empty."""
    step = -(-len(labels) // most) or 1
    return [label if not place % step else "" for place, label in enumerate(labels)]


def new_source(name: str, *columns: str) -> ColumnDataSource:
    """Returns a source with empty columns."""
    return ColumnDataSource(data={column: [] for column in columns}, name=name)


def clear(*sources: ColumnDataSource) -> None:
    """Removes all rows of sources."""
    for source in sources:
        source.data = {column: [] for column in source.data}


def finite(values: npt.ArrayLike) -> Floats:
    """Returns values as float64 with NaN for infinity, which no range can contain."""
    numbers = np.asarray(values, np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def add_empty_text(plot: figure, text: str) -> ColumnDataSource:
    """Adds a text to a figure that explains what to do while it shows nothing."""
    text = "\n".join(fill(line, _MOST_COLUMNS, break_long_words=False) for line in text.split("\n"))
    bottom = max(16, int(plot.height) - 150)  # pixels from the bottom of the frame
    source = ColumnDataSource(data={"x": [], "y": [], "text": []}, tags=[text, bottom])
    set_empty(source, empty=True)
    # Bokeh warns of a range without anything to contain.
    renderer = draw(plot, source, Segment(x0=0, y0=0, x1=1, y1=1, line_alpha=0))
    for axis_range in (plot.x_range, plot.y_range):
        if isinstance(axis_range, DataRange1d) and axis_range.renderers:  # others follow all
            axis_range.renderers = [*axis_range.renderers, renderer]
    add_labels(plot, source, y_units="screen", text_font_size="13px")
    return source


def add_labels(plot: figure, source: ColumnDataSource, **options: Any) -> LabelSet:
    """Writes a text of each row of a source, at `x` pixels of the screen."""
    options = {"x": "x", "text": "text", "text_font_size": "12px", **options}
    labels = LabelSet(
        y="y", source=source, x_units="screen", text_color=INK, text_font=value(FONT),
        **options,
    )  # fmt: skip
    plot.add_layout(labels)
    return labels


def set_empty(source: ColumnDataSource, empty: bool) -> None:
    """Shows or hides the text that `add_empty_text` added."""
    if empty != bool(len(source.data["x"])):
        text, bottom = source.tags
        source.data = (
            {"x": [16], "y": [bottom], "text": [text]} if empty else {"x": [], "y": [], "text": []}
        )


def say_not_drawn(root: Model) -> None:
    """Says in an empty chart that it can't be drawn: what it would have needed may be there."""
    for label in root.select({"type": LabelSet}):
        source = label.source
        if source.tags:  # else its texts are the chart's own
            shown = bool(len(source.data["x"]))
            source.tags = ["This can't be drawn.", source.tags[1]]
            set_empty(source, empty=False)
            set_empty(source, empty=shown)
