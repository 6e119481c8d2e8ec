"""Charts for the width of a notebook, which has no room for some of their texts."""

from __future__ import annotations

from typing import Final

from bokeh.models import BasicTicker

from distlab.charts import PlacementTable, ReductionBars
from distlab.folds import PlacementColumns

_MOST_TEXTS: Final = 8


def narrow_reductions() -> ReductionBars:
    """Returns a chart of reductions with fewer marks on its axis."""
    chart = ReductionBars(height=130)
    chart.root.xaxis.ticker = BasicTicker(desired_num_ticks=3)
    return chart


class NarrowPlacements:
    """A table of variables whose cells have the room of the texts beside them.

    Attributes:
      root: The figure.
      source: The cells.
    """

    def __init__(self) -> None:
        self._table = PlacementTable(height=260)
        self.root, self.source = self._table.root, self._table.source
        self.root.right = []
        self.root.min_border_left, self.root.min_border_right = 90, 8

    def update(self, columns: PlacementColumns) -> None:
        """Shows the newest columns; with many devices only tooltips have the bytes."""
        self._table.update(columns)
        if len(columns["device"]) > _MOST_TEXTS:
            cells = dict(self.source.data)
            self.source.data = {**cells, "text": [""] * len(cells["text"])}
