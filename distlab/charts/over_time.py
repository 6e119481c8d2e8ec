"""Amounts over time: rates, memory, examples of batches, and bytes to and from servers."""

from __future__ import annotations

import numpy as np
from bokeh.models import BasicTicker, VBar

from distlab.charts import _figure as fig
from distlab.charts.theme import colour
from distlab.folds import BatchColumns, CoordinationColumns, DeviceColumns, StepColumns
from distlab.text.bytes import bytes_text
from distlab.text.units import duration_text

_MOST_BATCHES = 120


class Rates:
    """Steps per second over time; the tooltip has examples per second.

    Attributes:
      root: The figure.
      source: One row for each bin of time: `time`, `steps`, `examples`, `bin`.
    """

    def __init__(self, *, height: int = 220) -> None:
        self.source = fig.new_source("rates", "time", "steps", "examples", "bin")
        self.root = fig.area_figure(
            "Steps per second",
            self.source,
            "steps",
            number=2,
            padding=0.1,
            tooltips=[
                ("steps/s", "@steps{0,0.0}"),
                ("examples/s", "@examples{0,0}"),
                ("counted over", "@bin"),
            ],
            height=height,
        )
        self._empty = fig.add_empty_text(self.root, "The rate shows after some steps.")

    def update(self, columns: StepColumns) -> None:
        """Shows the newest `Folds.columns("steps")`."""
        bins = len(columns["time_s"]) if columns["steps"] else 0
        self.source.data = {
            "time": columns["time_s"][:bins],
            "steps": columns["steps_per_s"][:bins],
            "examples": columns["examples_per_s"][:bins],
            "bin": [duration_text(columns["bin_s"])] * bins,
        }
        fig.set_empty(self._empty, bins < 2)


class ProcessMemory:
    """Resident memory of the whole training process.

    Attributes:
      root: The figure.
      source: One row for each watched window: `time`, `bytes`, `text`.
    """

    def __init__(self, *, height: int = 190) -> None:
        self.source = fig.new_source("memory", "time", "bytes", "text")
        self.root = fig.area_figure(
            "Resident memory of the whole process",
            self.source,
            "bytes",
            number=4,
            padding=0.15,
            tooltips=[("resident", "@text")],
            height=height,
        )
        self.root.yaxis.formatter = fig.bytes_formatter()
        self._empty = fig.add_empty_text(self.root, "Memory shows when steps were taken.")

    def update(self, columns: DeviceColumns) -> None:
        """Shows the newest `Folds.columns("devices")`."""
        sizes = columns["process_bytes"].astype(np.float64)
        self.source.data = {
            "time": columns["end_s"],
            "bytes": sizes,
            "text": [bytes_text(size) for size in sizes],
        }
        fig.set_empty(self._empty, not len(sizes))


class BatchHistory:
    """Examples of the newest batches; partial batches have another colour.

    Attributes:
      root: The figure.
      source: One row for each of the newest 120 kept batches.
    """

    def __init__(self, *, height: int = 220) -> None:
        self.source = fig.new_source(
            "history", "number", "epoch", "batch", "examples", "color", "wait", "transfer"
        )
        title = "Examples in each of the newest batches"
        plot = fig.amount_figure(title, x_label="batch", height=height)
        bar = VBar(x="number", top="examples", width=0.8, fill_color="color", line_color=None)
        bars = fig.draw(plot, self.source, bar)
        plot.xgrid.visible = False
        plot.xaxis.ticker = BasicTicker(min_interval=1)
        fig.add_hover(
            plot,
            bars,
            ("batch", "@number (epoch @epoch, batch @batch)"),
            ("examples", "@examples"),
            ("waited for data", "@wait{0.000} ms"),
            ("put on devices in", "@transfer{0.000} ms"),
        )
        self._empty = fig.add_empty_text(plot, "Batches show when the dataset is iterated.")
        self.root = plot

    def update(self, columns: BatchColumns) -> None:
        """Shows the newest `Folds.columns("batches")`."""
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
        fig.set_empty(self._empty, not len(columns["number"]))


class ServerTraffic:
    """Bytes per second that all workers read from all servers and sent there.

    Attributes:
      root: The figure.
      source: One row for each direction: `name`, `xs`, `ys`, `color`, `dash`.
    """

    def __init__(self, *, height: int = 240) -> None:
        self.source = fig.new_source("server_traffic", "name", "xs", "ys", "color", "dash")
        title = "Bytes per second from and to servers"
        plot = fig.amount_figure(title, height=height)
        tooltips = [("at", "$x{0.0} s"), ("bytes per second", "$y{0,0}")]
        curves = fig.draw_curves(plot, self.source, "xs", "ys", tooltips=tooltips, dash="dash")
        plot.yaxis.formatter = fig.bytes_formatter()
        fig.add_legend(plot, curves)
        self._empty = fig.add_empty_text(
            plot, "The bytes show after the first moments of training."
        )
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
        fig.set_empty(self._empty, not shown)
