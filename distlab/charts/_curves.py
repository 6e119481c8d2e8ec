"""Figures of curves by step: zoomed by wheel and drag, on a linear or log axis, smoothed or not."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from bokeh.core.properties import field
from bokeh.models import (
    BasicTicker,
    BoxZoomTool,
    ColumnDataSource,
    CustomAction,
    CustomJS,
    CustomJSHover,
    CustomJSTickFormatter,
    CustomJSTransform,
    DataRange1d,
    HoverTool,
    MultiLine,
    Patches,
    ResetTool,
    WheelZoomTool,
)

from distlab.charts import _figure as fig
from distlab.charts._timeline_tools import place_toolbar
from distlab.folds.arrays import Floats

_VALUES: Final = """
const drawn = (y) => !log.active ? y : y > 0 ? Math.log10(y) : NaN
if (!smooth?.active) return xs.map((ys) => Float64Array.from(ys, drawn))
return xs.map((ys) => {
  let sum = 0, weight = 0
  return Float64Array.from(ys, (y) => {
    if (!Number.isFinite(y)) return NaN
    sum = 0.9 * sum + 0.1 * y
    weight = 0.9 * weight + 0.1
    return drawn(sum / weight)
  })
})
"""
"""Smoothed is the mean in which each point counts 0.9 times as much as the next."""

_ONE: Final = "return Float64Array.from(xs, (y) => !log.active ? y : Math.log10(Math.max(y, 0)))"

_TOGGLE: Final = """
action.setv({active: !action.active}, {sync: false})
behind.setv({visible: smooth.active}, {sync: false})
for (const transform of transforms) transform.change.emit()
"""

_TICK: Final = """
if (!log.active) return number(tick, ticks)
const value = 10 ** tick
return value >= 1e-3 && value < 1e5 ? `${Number(value.toPrecision(2))}` : value.toExponential(1)
"""

_VALUE: Final = "return Number((log.active ? 10 ** value : value).toPrecision(5))"


class Curves:
    """A figure with a curve of values by step for each row of a source.

    Where neighbours share a point, a band behind the curve reaches from lowest to highest.

    Attributes:
      root: The figure.
      source: The curves: `name`, `step` and `value` (arrays), `color`.
      bands: The outlines of bands: `step` and `value` (arrays), `color`.
    """

    def __init__(
        self, title: str, source: ColumnDataSource, *, height: int, dash: str = ""
    ) -> None:
        self.source = source
        self.bands = fig.new_source(f"{source.name}_bands", "step", "value", "color")
        plot = self.root = fig.new_figure(
            title,
            x_label="step",
            height=height,
            x_range=DataRange1d(range_padding=0.01),
            y_range=DataRange1d(range_padding=0.08),
        )
        plot.xaxis.ticker = BasicTicker(min_interval=1)
        plot.xaxis.formatter = fig.number_formatter()
        self._log = _action("log", "Logarithmic axis")
        smooth = _action("avg", "Running average of about ten points, with the points behind")
        args: dict[str, Any] = {"log": self._log, "smooth": None}
        exact = CustomJSTransform(args=args, v_func=_VALUES)
        shown = CustomJSTransform(args={**args, "smooth": smooth}, v_func=_VALUES)
        band = Patches(
            xs="step", ys=field("value", exact), fill_color="color", fill_alpha=0.2, line_color=None
        )
        fig.draw(plot, self.bands, band)
        behind = fig.draw(plot, source, _lines(exact, dash, line_alpha=0.25))
        behind.visible = False
        curves = fig.draw(plot, source, _lines(shown, dash))
        fig.add_legend(plot, curves)
        value = CustomJSHover(args=args, code=_VALUE)
        tooltips = [("", "@name"), ("step", "$snap_x{0,0}"), ("value", "$snap_y{custom}")]
        wheel, box = WheelZoomTool(dimensions="width"), BoxZoomTool()
        plot.add_tools(
            HoverTool(
                renderers=[curves],
                line_policy="nearest",
                tooltips=tooltips,
                formatters={"$snap_y": value},
                visible=False,
            ),
            wheel, box, ResetTool(), self._log, smooth,
        )  # fmt: skip
        plot.toolbar.active_scroll, plot.toolbar.active_drag = wheel, box
        place_toolbar(plot)
        plot.yaxis.formatter = CustomJSTickFormatter(args=args, code=fig.NUMBER + _TICK)
        for action in (self._log, smooth):
            action.callback = CustomJS(
                args={
                    "action": action,
                    "smooth": smooth,
                    "behind": behind,
                    "transforms": [exact, shown],
                },
                code=_TOGGLE,
            )

    def on_axis(self, column: str) -> Any:
        """Returns a column as a glyph of this figure draws it, whichever axis was chosen."""
        return field(column, CustomJSTransform(args={"log": self._log}, v_func=_ONE))


def outline(step: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Returns the outline of a band around a curve: there at its top, and back below."""
    kept = np.isfinite(low) & np.isfinite(high)
    step, low, high = step[kept], low[kept], high[kept]
    return np.concatenate([step, step[::-1]]), np.concatenate([high, low[::-1]])


def _lines(transform: CustomJSTransform, dash: str, **options: Any) -> MultiLine:
    lines = MultiLine(
        xs="step", ys=field("value", transform), line_color="color", line_width=2,
        line_join="round", **options,
    )  # fmt: skip
    if dash:
        lines.line_dash = dash
    return lines


def _action(word: str, description: str) -> CustomAction:
    """Returns a button of a figure's tools with a word on it."""
    picture = (
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'><text x='12' y='17' "
        f"text-anchor='middle' font-family='sans-serif' font-size='13' fill='gray'>{word}</text>"
        "</svg>"
    )
    return CustomAction(icon=f"data:image/svg+xml,{picture}", description=description)
