"""The run's speed over time."""

from __future__ import annotations

from distlab.charts._figure import area_figure
from distlab.charts._sources import add_empty_text, new_source, set_empty
from distlab.folds import StepColumns
from distlab.folds.accepted import require_columns
from distlab.text.units import duration_text


class Rates:
    """Steps per second over time; the tooltip has examples per second.

    Attributes:
      root: The figure.
      source: One row for each bin of time: `time`, `steps`, `examples`, `bin`.
    """

    def __init__(self, *, height: int = 220) -> None:
        """Makes an empty chart.

        Args:
          height: Height in pixels.
        """
        self.source = new_source("rates", "time", "steps", "examples", "bin")
        self.root = area_figure(
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
        self._empty = add_empty_text(
            self.root, "The rate shows after the first moments of training."
        )

    def update(self, columns: StepColumns) -> None:
        """Shows the newest columns of `folds.Steps`.

        Args:
          columns: `Folds.columns("steps")`.

        Raises:
          ArgumentTypeError: They are something else.
        """
        require_columns("Rates.update", columns, StepColumns, "Folds.columns('steps')")
        bins = len(columns["time_s"])
        self.source.data = {
            "time": columns["time_s"],
            "steps": columns["steps_per_s"],
            "examples": columns["examples_per_s"],
            "bin": [duration_text(columns["bin_s"])] * bins,
        }
        set_empty(self._empty, bins < 2)
