"""Bytes a second between workers and parameter servers, over time."""

from __future__ import annotations

from bokeh.models import DataRange1d

from distlab.charts._figure import add_legend, bytes_formatter, draw_curves, new_figure
from distlab.charts._sources import add_empty_text, new_source, set_empty
from distlab.charts.theme import colour
from distlab.folds import CoordinationColumns


class ServerTraffic:
    """What all workers read from all servers and sent there, in bytes a second.

    Attributes:
      root: The figure.
      source: One row for each direction: `name`, `xs`, `ys`, `color`, `dash`.
    """

    def __init__(self, *, height: int = 240) -> None:
        """Makes an empty chart.

        Args:
          height: Height in pixels.
        """
        self.source = new_source("server_traffic", "name", "xs", "ys", "color", "dash")
        plot = new_figure(
            "Bytes a second between workers and parameter servers",
            x_label="seconds since the run began",
            height=height,
            x_range=DataRange1d(range_padding=0.01),
            y_range=DataRange1d(start=0, range_padding=0.1),
        )
        tooltips = [("at", "$x{0.0} s"), ("bytes a second", "$y{0,0}")]
        curves = draw_curves(plot, self.source, "xs", "ys", tooltips=tooltips, dash="dash")
        plot.yaxis.formatter = bytes_formatter()
        add_legend(plot, curves)
        self._empty = add_empty_text(plot, "The bytes show after the first moments of training.")
        self.root = plot

    def update(self, columns: CoordinationColumns) -> None:
        """Shows the newest columns of `folds.Coordination`."""
        shown = len(columns["cell_s"]) > 1 and bool(columns["link_worker"])
        self.source.data = {
            "name": ["read by workers", "sent by workers"] if shown else [],
            "xs": [columns["cell_s"]] * 2 if shown else [],
            "ys": [columns["cell_read_per_s"], columns["cell_change_per_s"]] if shown else [],
            "color": [colour(0), colour(1)] if shown else [],
            "dash": ["solid", "dashed"] if shown else [],  # both may be alike
        }
        set_empty(self._empty, not shown)
