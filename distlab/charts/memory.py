"""Memory over time: of the process, which is not memory of devices."""

from __future__ import annotations

import numpy as np
from bokeh.models import ColumnDataSource, DataRange1d, HoverTool, Line, VArea

from distlab.charts._parts import (
    add_empty_text,
    bytes_formatter,
    draw,
    new_figure,
    set_empty,
)
from distlab.charts.theme import colour
from distlab.folds import DeviceColumns
from distlab.text.bytes import bytes_text


class ProcessMemory:
    """Resident memory of the whole training process.

    Reads the columns of `folds.Devices`: `end_s`, `process_bytes`.

    Attributes:
      root: the figure.
      source: one row for each watched window: `time`, `bytes`, `text`.
    """

    def __init__(self, *, height: int = 190) -> None:
        """Makes an empty chart of `height` pixels."""
        names = ("time", "bytes", "text")
        self.source = ColumnDataSource(data={name: [] for name in names}, name="memory")
        plot = new_figure(
            "Resident memory of the whole process",
            x_label="seconds since the run began",
            height=height,
            x_range=DataRange1d(range_padding=0.01),
            y_range=DataRange1d(start=0, range_padding=0.15),
        )
        area = VArea(x="time", y1=0, y2="bytes", fill_color=colour(4), fill_alpha=0.16)
        draw(plot, self.source, area)
        line = draw(
            plot, self.source, Line(x="time", y="bytes", line_color=colour(4), line_width=2)
        )
        plot.yaxis.formatter = bytes_formatter()
        plot.add_tools(
            HoverTool(
                renderers=[line],
                mode="vline",
                tooltips=[("at", "@time{0.0} s"), ("resident", "@text")],
            )
        )
        self._empty = add_empty_text(plot, "Memory shows when strategy.run(...) has taken steps.")
        self.root = plot

    def update(self, columns: DeviceColumns) -> None:
        """Shows the newest columns."""
        sizes = columns["process_bytes"].astype(np.float64)
        self.source.data = {
            "time": columns["end_s"],
            "bytes": sizes,
            "text": [bytes_text(size) for size in sizes],
        }
        set_empty(self._empty, not len(sizes))
