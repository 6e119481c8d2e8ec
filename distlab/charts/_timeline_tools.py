"""The timeline's own behaviour on the page: ticks, zooming and tooltips."""

from __future__ import annotations

from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    CompositeTicker,
    CustomJSHover,
    GlyphRenderer,
    HoverTool,
    InlineStyleSheet,
    PanTool,
    ResetTool,
    WheelZoomTool,
)
from bokeh.plotting import figure

TOGGLE = """
if (plot.properties.inner_width.is_unset) return
const [step] = about.get_column("step_s") ?? []
const [lanes] = about.get_column("lanes") ?? []
const {x_range, inner_width, inner_height} = plot
const pixels = inner_width / (x_range.end - x_range.start)
if (step === undefined || !(pixels > 0)) return
const exact = step * pixels >= 2, [time] = plot.below, ticks = inner_width < 400 ? 3 : 6
if (time.ticker.desired_num_ticks != ticks) {
  time.ticker.setv({desired_num_ticks: ticks}, {sync: false})
}
const [room] = words.get_column("room")
const show = (renderer, visible) => {
  if (renderer.visible != visible) renderer.setv({visible}, {sync: false})
}
show(under, !exact)
show(of_cells, !exact)
show(of_spans, exact)
show(spans, exact)
show(watched, exact)
show(numbers, exact && room * pixels >= 40 && inner_height / (lanes + 1) >= 14)
"""
"""Shows single steps when each has at least two pixels, else cells in their place."""

TICK = """
const gap = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : 1
const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(gap) - 1e-9)))
const most = Math.max(...ticks)
if (most < 60) return tick.toFixed(digits)
const whole = Math.floor(tick / 60 + 1e-9)
const seconds = Math.max(0, tick - 60 * whole).toFixed(digits)
const two = (text) => text.padStart(digits ? digits + 3 : 2, "0")
const hours = Math.floor(whole / 60), minutes = String(whole % 60).padStart(2, "0")
return `${hours}:${minutes}:${two(seconds)}`
"""
"""Writes seconds, or hours, minutes and seconds where there are minutes."""

_LANE = """
const [names, middles, heights] = ["lane", "y", "height"].map((name) => lanes.get_column(name))
const near = (lane) => Math.abs(special_vars.y - middles[lane]) <= heights[lane] / 2
return names.find((_, lane) => near(lane)) ?? ""
"""

_CELL = """
if (value % 64 == 0) return "not watched"
const share = Math.round(100 * (value % 64 - 1) / 62)
const sort = Math.floor(value / 64)
const sorts = ["waiting for a batch", "in calls of run", "computing"]
const text = `${share} % of the time ${sorts[sort]}`
if (sort != 1) return text
const {index, flat_index} = special_vars.image_index ?? {}
const begun = cells.get_column("steps")[index]?.[flat_index]
return begun === undefined ? text : `${text}, ${begun} steps called`
"""

_SPAN = """
const row = special_vars.index
if (format == "length") {
  const length = spans.get_column("end")[row] - spans.get_column("begin")[row]
  if (length < 1e-3) return `${(1e6 * length).toFixed(0)} \\u00b5s`
  return length < 1 ? `${(1e3 * length).toPrecision(4)} ms` : `${length.toPrecision(5)} s`
}
const number = spans.get_column("number")[row]
return [
  `waiting for batch ${number}`, `call of run, step ${number}`, `step ${number}`,
  `step ${number}`, `putting batch ${number} on the devices`,
][value]
"""


def time_ticker() -> CompositeTicker:
    """Returns ticks at round numbers of seconds, minutes and hours."""
    return CompositeTicker(
        tickers=[
            AdaptiveTicker(mantissas=[1, 2, 5], base=10, min_interval=0, max_interval=20),
            AdaptiveTicker(
                mantissas=[1, 2, 5, 10, 15, 20, 30], base=60, min_interval=30, max_interval=1_800
            ),
            AdaptiveTicker(
                mantissas=[1, 2, 4, 6, 12], base=24, min_interval=3_600, max_interval=None
            ),
        ]
    )


def add_zooming(plot: figure) -> None:
    """Adds tools to zoom a figure with the wheel and to drag it along its x axis."""
    wheel, pan = WheelZoomTool(dimensions="width"), PanTool(dimensions="width")
    plot.add_tools(wheel, pan, ResetTool())
    plot.toolbar.active_scroll, plot.toolbar.active_drag = wheel, pan
    place_toolbar(plot)


def place_toolbar(plot: figure) -> None:
    """Shows a figure's tools while the mouse is on it."""
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    # Inside the figure, so that the title has the place of all titles.
    plot.toolbar_location, plot.toolbar_inner = "above", True
    plot.toolbar.stylesheets = [InlineStyleSheet(css=":host { background: none !important; }")]


def cell_hover(cells: GlyphRenderer, lanes: ColumnDataSource) -> HoverTool:
    """Returns a tooltip for cells: the share of the cell's time, and how it was spent."""
    cell = CustomJSHover(args={"cells": cells.data_source}, code=_CELL)
    return _hover(cells, lanes, [("", "@image{custom}"), ("at", "$x{0,0.000} s")], {"@image": cell})


def span_hover(spans: GlyphRenderer, lanes: ColumnDataSource) -> HoverTool:
    """Returns a tooltip for spans: the step or batch, its lane, begin and length."""
    span = CustomJSHover(args={"spans": spans.data_source}, code=_SPAN)
    lines = [("", "@sort{what}"), ("from", "@begin{0,0.000000} s"), ("for", "@end{length}")]
    return _hover(spans, lanes, lines, {"@sort": span, "@end": span})


def _hover(
    renderer: GlyphRenderer,
    lanes: ColumnDataSource,
    lines: list[tuple[str, str]],
    formatters: dict[str, CustomJSHover],
) -> HoverTool:
    """Returns a tooltip with the lane's name above these lines."""
    lane = CustomJSHover(args={"lanes": lanes}, code=_LANE)
    return HoverTool(
        renderers=[renderer],
        tooltips=[("", "@y{custom}"), *lines],
        formatters={"@y": lane, **formatters},
        visible=False,
    )
