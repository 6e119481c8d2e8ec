"""The sources of charts: the data that figures draw, and the text of an empty chart."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, DataRange1d, LabelSet, Model, Segment
from bokeh.plotting import figure

from distlab.charts._figure import draw
from distlab.charts.theme import FONT, INK
from distlab.folds.arrays import Floats


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
    bottom = max(16, int(plot.height) - 150)  # pixels from the bottom of the frame
    source = ColumnDataSource(data={"x": [], "y": [], "text": []}, tags=[text, bottom])
    set_empty(source, empty=True)
    # Bokeh warns of a range without anything to contain.
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
    """Shows or hides the text that `add_empty_text` added."""
    if empty != bool(len(source.data["x"])):
        text, bottom = source.tags
        source.data = (
            {"x": [16], "y": [bottom], "text": [text]} if empty else {"x": [], "y": [], "text": []}
        )


def say_not_drawn(root: Model) -> None:
    """Says in an empty chart that it can't be drawn: what it would have needed may be there.

    Args:
      root: The chart's Bokeh model.
    """
    for label in root.select({"type": LabelSet}):
        source = label.source
        if source.tags:  # else its texts are the chart's own
            shown = bool(len(source.data["x"]))
            source.tags = ["This can't be drawn.", source.tags[1]]
            set_empty(source, empty=False)
            set_empty(source, empty=shown)
