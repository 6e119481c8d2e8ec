"""How fast the run goes, over time."""

from __future__ import annotations

from bokeh.models import ColumnDataSource, DataRange1d, HoverTool, Line, VArea

from distlab.charts._parts import add_empty_text, draw, new_figure, set_empty
from distlab.charts.theme import colour
from distlab.folds import StepColumns
from distlab.text.units import duration_text


class Rates:
    """Steps per second over time; examples per second when one points at it.

    Reads the columns of `folds.Steps`: `time_s`, `steps_per_s`,
    `examples_per_s`, `bin_s`.

    Attributes:
      root: the figure.
      source: one row for each bin of time: `time`, `steps`, `examples`, `bin`.
    """

    def __init__(self, *, height: int = 220) -> None:
        """Makes an empty chart of `height` pixels."""
        names = ("time", "steps", "examples", "bin")
        self.source = ColumnDataSource(data={name: [] for name in names}, name="rates")
        plot = new_figure(
            "Steps per second",
            x_label="seconds since the run began",
            height=height,
            x_range=DataRange1d(range_padding=0.01),
            y_range=DataRange1d(start=0, range_padding=0.1),
        )
        area = VArea(x="time", y1=0, y2="steps", fill_color=colour(2), fill_alpha=0.16)
        draw(plot, self.source, area)
        curve = Line(x="time", y="steps", line_color=colour(2), line_width=2, line_join="round")
        line = draw(plot, self.source, curve)
        plot.add_tools(
            HoverTool(
                renderers=[line],
                mode="vline",
                tooltips=[
                    ("at", "@time{0.0} s"),
                    ("steps/s", "@steps{0,0.0}"),
                    ("examples/s", "@examples{0,0}"),
                    ("counted over", "@bin"),
                ],
            )
        )
        self._empty = add_empty_text(plot, "The rate shows after the first moments of training.")
        self.root = plot

    def update(self, columns: StepColumns) -> None:
        """Shows the newest columns."""
        bins = len(columns["time_s"])
        self.source.data = {
            "time": columns["time_s"],
            "steps": columns["steps_per_s"],
            "examples": columns["examples_per_s"],
            "bin": [duration_text(columns["bin_s"])] * bins,
        }
        set_empty(self._empty, bins < 2)
