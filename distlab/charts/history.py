"""The sizes of the newest batches."""

from __future__ import annotations

import numpy as np
from bokeh.models import BasicTicker, DataRange1d, HoverTool, VBar

from distlab.charts._figure import draw, new_figure
from distlab.charts._sources import add_empty_text, new_source, set_empty
from distlab.charts.theme import colour
from distlab.folds import BatchColumns
from distlab.folds.accepted import require_columns

_MOST_BATCHES = 120


class BatchHistory:
    """Examples of the newest batches; uneven batches have another colour.

    Attributes:
      root: The figure.
      source: One row for each of the newest 120 kept batches.
    """

    def __init__(self, *, height: int = 220) -> None:
        """Makes an empty chart.

        Args:
          height: Height in pixels.
        """
        self.source = new_source(
            "history", "number", "epoch", "batch", "examples", "color", "wait", "transfer"
        )
        plot = new_figure(
            "Examples in each of the newest batches",
            x_label="batch",
            height=height,
            x_range=DataRange1d(range_padding=0.01),
            y_range=DataRange1d(start=0, range_padding=0.1),
        )
        bar = VBar(x="number", top="examples", width=0.8, fill_color="color", line_color=None)
        bars = draw(plot, self.source, bar)
        plot.xgrid.visible = False
        plot.xaxis.ticker = BasicTicker(min_interval=1)
        plot.add_tools(
            HoverTool(
                renderers=[bars],
                tooltips=[
                    ("batch", "@number (epoch @epoch, batch @batch)"),
                    ("examples", "@examples"),
                    ("waited for data", "@wait{0.000} ms"),
                    ("put on devices in", "@transfer{0.000} ms"),
                ],
            )
        )
        self._empty = add_empty_text(plot, "Batches show when the dataset is iterated.")
        self.root = plot

    def update(self, columns: BatchColumns) -> None:
        """Shows the newest columns of `folds.Batches`.

        Args:
          columns: `Folds.columns("batches")`.

        Raises:
          ArgumentTypeError: They are something else.
        """
        require_columns("BatchHistory.update", columns, BatchColumns, "Folds.columns('batches')")
        newest = slice(-_MOST_BATCHES, None)
        self.source.data = {
            "number": columns["number"][newest],
            "epoch": columns["epoch"][newest],
            "batch": columns["batch"][newest],
            "examples": columns["examples"][newest],
            "color": np.where(columns["uneven"][newest], colour(1), colour(4)).tolist(),
            "wait": columns["wait_ms"][newest],
            "transfer": columns["transfer_ms"][newest],
        }
        set_empty(self._empty, not len(columns["number"]))
