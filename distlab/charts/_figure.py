"""Figures in the charts' style.

While a chart lives, only the data of its sources changes, the labels of its axes
included: replacing that data updates a chart wherever it is embedded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.models import (
    Axis,
    ColumnDataSource,
    CustomJSTickFormatter,
    DataRange1d,
    Glyph,
    GlyphRenderer,
    HoverTool,
    InlineStyleSheet,
    Label,
    Legend,
    LegendItem,
    Line,
    MultiLine,
    VArea,
)
from bokeh.plotting import figure

from distlab.charts.theme import FAINT, FONT, INK, colour

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


def new_figure(
    title: str, *, x_label: str = "", y_label: str = "", height: int = 300, **options: Any
) -> figure:
    """Returns an empty figure in the charts' style."""
    options.setdefault("sizing_mode", "stretch_width")
    options.setdefault("tools", "")
    plot = figure(
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
    if title:
        _add_title(plot, title)
    plot.grid.grid_line_color = FAINT
    plot.grid.grid_line_alpha = 0.5
    for axis in plot.axis:
        style_axis(axis)
    return plot


def _add_title(plot: figure, title: str) -> None:
    """Adds a title at the left edge; Bokeh's own begins where the axis begins."""
    words = Label(
        text=title,
        x=0,
        y=0,
        x_units="canvas",
        y_units="screen",
        text_font=FONT,
        text_font_size="14px",
        text_font_style="bold",
        text_color=INK,
        padding=(0, 0, 0, 8),
    )
    plot.add_layout(words, "above")


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
    plot = new_figure(
        title,
        x_label="seconds since the run began",
        height=height,
        x_range=DataRange1d(range_padding=0.01),
        y_range=DataRange1d(start=0, range_padding=padding),
    )
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


def range_of(renderers: Sequence[GlyphRenderer], padding: float = 0.02) -> DataRange1d:
    """Returns a range that contains what these renderers draw, and nothing else."""
    return DataRange1d(renderers=list(renderers), range_padding=padding)
