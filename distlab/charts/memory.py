"""The process's memory over time, which is not the devices' memory."""

from __future__ import annotations

import numpy as np

from distlab.charts._figure import area_figure, bytes_formatter
from distlab.charts._sources import add_empty_text, new_source, set_empty
from distlab.folds import DeviceColumns
from distlab.folds.accepted import require_columns
from distlab.text.bytes import bytes_text


class ProcessMemory:
    """Resident memory of the whole training process.

    Attributes:
      root: The figure.
      source: One row for each watched window: `time`, `bytes`, `text`.
    """

    def __init__(self, *, height: int = 190) -> None:
        """Makes an empty chart.

        Args:
          height: Height in pixels.
        """
        self.source = new_source("memory", "time", "bytes", "text")
        self.root = area_figure(
            "Resident memory of the whole process",
            self.source,
            "bytes",
            number=4,
            padding=0.15,
            tooltips=[("resident", "@text")],
            height=height,
        )
        self.root.yaxis.formatter = bytes_formatter()
        self._empty = add_empty_text(
            self.root, "Memory shows when strategy.run(...) has taken steps."
        )

    def update(self, columns: DeviceColumns) -> None:
        """Shows the newest columns of `folds.Devices`.

        Args:
          columns: `Folds.columns("devices")`.

        Raises:
          ArgumentTypeError: They are something else.
        """
        require_columns("ProcessMemory.update", columns, DeviceColumns, "Folds.columns('devices')")
        sizes = columns["process_bytes"].astype(np.float64)
        self.source.data = {
            "time": columns["end_s"],
            "bytes": sizes,
            "text": [bytes_text(size) for size in sizes],
        }
        set_empty(self._empty, not len(sizes))
