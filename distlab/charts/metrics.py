"""Logged numbers over steps, such as the loss."""

from __future__ import annotations

from collections.abc import Callable

from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    DataRange1d,
    GlyphRenderer,
    HoverTool,
    InlineStyleSheet,
    Legend,
    LegendItem,
    MultiLine,
)

from distlab.charts._parts import add_empty_text, draw, finite, new_figure, set_empty
from distlab.charts.theme import FONT, INK, colour
from distlab.folds import MetricColumns
from distlab.text.units import plain, value_text

_MOST_CURVES = 8
_LEGEND_CSS = f"[class*=label] {{ color: var(--dl-text, {INK}) !important; }}"


class MetricLines:
    """One line for each metric; of long runs the extremes of neighbouring values.

    Reads the columns of `folds.Metrics`: `name`, `step`, `value`, `last`.

    Attributes:
      root: the figure.
      source: one row for each metric: `name`, `step` and `value` (arrays),
        `last` (text), `legend`, `color`.
    """

    def __init__(
        self, title: str, wanted: Callable[[str], bool], *, empty: str, height: int = 300
    ) -> None:
        """Makes an empty chart.

        Args:
          title: what it shows.
          wanted: which metrics, by their names.
          empty: what to say while there are none.
          height: pixels.
        """
        self._wanted = wanted
        names = ("name", "step", "value", "last", "legend", "color")
        self.source = ColumnDataSource(data={name: [] for name in names}, name="metrics")
        plot = new_figure(
            title,
            x_label="step",
            height=height,
            x_range=DataRange1d(range_padding=0.01),
            y_range=DataRange1d(range_padding=0.08),
        )
        plot.xaxis.ticker = BasicTicker(min_interval=1)
        curves = MultiLine(
            xs="step", ys="value", line_color="color", line_width=2, line_join="round"
        )
        lines = draw(plot, self.source, curves)
        plot.add_tools(
            HoverTool(
                renderers=[lines],
                line_policy="nearest",
                tooltips=[("", "@name"), ("step", "$snap_x{0,0}"), ("value", "$snap_y{0.0000}")],
            )
        )
        plot.add_layout(_legend(lines))
        self._empty = add_empty_text(plot, empty)
        self.root = plot

    def update(self, columns: MetricColumns) -> None:
        """Shows the newest columns."""
        chosen = [place for place, name in enumerate(columns["name"]) if self._wanted(name)]
        chosen = chosen[:_MOST_CURVES]
        names = [plain(columns["name"][place], 40) for place in chosen]
        last = [value_text(columns["last"][place]) for place in chosen]
        self.source.data = {
            "name": names,
            "step": [columns["step"][place] for place in chosen],
            "value": [finite(columns["value"][place]) for place in chosen],
            "last": last,
            "legend": names,
            "color": [colour(number) for number in range(len(chosen))],
        }
        set_empty(self._empty, not chosen)


def _legend(lines: GlyphRenderer) -> Legend:
    return Legend(
        items=[LegendItem(label={"field": "legend"}, renderers=[lines])],
        location="top_right",
        background_fill_color=None,
        border_line_color=None,
        label_text_color=INK,
        label_text_font=FONT,
        label_text_font_size="12px",
        padding=0,
        spacing=0,
        # A legend takes its colour once, when it is made, so the page's theme comes by CSS.
        stylesheets=[InlineStyleSheet(css=_LEGEND_CSS)],
    )


def loss_lines(height: int = 300) -> MetricLines:
    """Returns the chart of all metrics with "loss" in their name."""
    return MetricLines(
        "Loss",
        lambda name: "loss" in name.lower(),
        empty="No loss was logged yet.\nrun.log(loss=...) inside of dl.record(...) shows it here.",
        height=height,
    )


def other_lines(height: int = 220) -> MetricLines:
    """Returns the chart of all other metrics."""
    return MetricLines(
        "Other metrics",
        lambda name: "loss" not in name.lower(),
        empty="No other numbers were logged.\nrun.log(accuracy=...) shows them here.",
        height=height,
    )
