"""All charts of pages and notebook views: how each is made, and which data it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from bokeh.models import BasicTicker

from distlab import charts
from distlab.charts import BatchTiles, Chart, Traffic, TrafficRow
from distlab.folds import (
    BatchColumns,
    BatchDetail,
    FoldName,
    Folds,
    PlacementColumns,
    part_of_batch,
    part_of_batches,
    part_of_captures,
    part_of_devices,
    part_of_placements,
)
from distlab.page.view import View

TILES_WIDTH: Final = 680
TRAFFIC_WIDTH: Final = 900
"""The most pixels that the tiles of a batch, and the drawing of a reduction, are wide."""

_MOST_TEXTS: Final = 8
"""The most devices whose cells have a text in the width of a notebook."""

C = TypeVar("C")
C_contra = TypeVar("C_contra", contravariant=True)


class Make(Protocol[C_contra]):
    """Makes an empty chart of columns of one type."""

    def __call__(self, *, height: int) -> Chart[C_contra]:
        """Makes the chart, `height` pixels high."""


@dataclass(frozen=True)
class Entry(Generic[C]):
    """One chart, wherever it is shown.

    Attributes:
      page: The page with the chart, empty for none.
      height: Its height there in pixels, which the page reserves.
      make: Makes it for a page, of a height.
      columns: Returns the columns to show; None for columns of several runs.
      state: Returns a value that differs whenever the columns do.
      notebook: Makes it for a notebook view, None where no view has it.
      costly: Whether it is drawn at most twice a second.
    """

    page: str
    height: int
    make: Make[C]
    columns: Callable[[Folds, View], C] | None = None
    state: Callable[[Folds, View], object] = lambda _folds, _view: None
    notebook: Callable[[], Chart[C]] | None = None
    costly: bool = False


def _version(*names: FoldName) -> Callable[[Folds, View], object]:
    """Returns a state of charts that show whole folds."""
    return lambda folds, _: tuple(folds.version(name) for name in names)


def _part(name: FoldName) -> Callable[[Folds, View], object]:
    """Returns a state of charts that show some devices of a fold."""
    return lambda folds, view: (folds.version(name), view.device)


def _tiles(*, height: int) -> BatchTiles:
    made = BatchTiles(height=height)
    made.root.max_width = TILES_WIDTH
    return made


def _traffic(*, height: int) -> Traffic:
    made = Traffic(height=height)
    made.root.max_width = TRAFFIC_WIDTH
    return made


def _batch(folds: Folds, view: View) -> BatchDetail | None:
    return part_of_batch(folds.batch(view.batch, view.dataset), view.replica)


def _batch_state(folds: Folds, view: View) -> object:
    """Returns which batch is shown; a preview may come later than its batch."""
    return _state_of(folds.batch(view.batch, view.dataset), view.replica)


def _newest_state(folds: Folds, view: View) -> object:
    del view
    return _state_of(folds.newest_of_main(), 0)


def _state_of(detail: BatchDetail | None, replica: int) -> object:
    return detail and (detail["number"], int(detail["known"].sum()), replica)


def _history(folds: Folds, view: View) -> BatchColumns:
    return part_of_batches(folds.columns("batches"), view.dataset)


def _one_reduction(folds: Folds, view: View) -> TrafficRow | None:
    return charts.traffic_row(
        folds.columns("reductions"),
        view.reduction,
        programs=folds.columns("programs"),
        devices=folds.columns("header")["replicas"],
    )


def _narrow_reductions() -> charts.ReductionBars:
    """Returns a chart of reductions with fewer marks on its axis."""
    chart = charts.ReductionBars(height=130)
    chart.root.xaxis.ticker = BasicTicker(desired_num_ticks=3)
    return chart


class _NarrowPlacements:
    """A table of variables whose cells have the room of the texts beside them.

    Attributes:
      root: The figure.
      source: The cells.
    """

    def __init__(self) -> None:
        self._table = charts.PlacementTable(height=260)
        self.root, self.source = self._table.root, self._table.source
        self.root.right = []
        self.root.min_border_left, self.root.min_border_right = 90, 8

    def update(self, columns: PlacementColumns) -> None:
        """Shows the newest columns; with many devices only tooltips have the bytes."""
        self._table.update(columns)
        if len(columns["device"]) > _MOST_TEXTS:
            cells = dict(self.source.data)
            self.source.data = {**cells, "text": [""] * len(cells["text"])}


CHARTS: Final[Mapping[str, Entry[Any]]] = {  # each has columns of its own type
    "loss": Entry(
        page="overview",
        height=320,
        make=charts.loss_lines,
        columns=lambda folds, _: folds.columns("metrics"),
        state=_version("metrics"),
    ),
    "newest": Entry(
        page="overview",
        height=320,
        make=_tiles,
        columns=lambda folds, _: part_of_batch(folds.newest_of_main()),
        state=_newest_state,
        costly=True,
    ),
    "rates": Entry(
        page="overview",
        height=210,
        make=charts.Rates,
        notebook=lambda: charts.Rates(height=200),
        columns=lambda folds, _: folds.columns("steps"),
        state=_version("steps"),
    ),
    "others": Entry(
        page="overview",
        height=210,
        make=charts.other_lines,
        columns=lambda folds, _: folds.columns("metrics"),
        state=_version("metrics"),
    ),
    "batches": Entry(
        page="batches",
        height=580,
        make=_tiles,
        notebook=lambda: BatchTiles(height=330),
        columns=_batch,
        state=_batch_state,
        costly=True,
    ),
    "history": Entry(
        page="batches",
        height=240,
        make=charts.BatchHistory,
        columns=_history,
        state=lambda folds, view: (folds.version("batches"), view.dataset),
    ),
    "devices": Entry(
        page="devices",
        height=340,
        make=partial(charts.DeviceShares, notes=False),
        notebook=lambda: charts.DeviceShares(height=240, notes=False),
        columns=lambda folds, view: part_of_devices(folds.columns("devices"), view.device),
        state=_part("devices"),
    ),
    "captured": Entry(
        page="devices",
        height=300,
        make=charts.CapturedSpans,
        columns=lambda folds, view: part_of_captures(folds.columns("captures"), view.device),
        state=_part("captures"),
    ),
    "memory": Entry(
        page="devices",
        height=210,
        make=charts.ProcessMemory,
        columns=lambda folds, _: folds.columns("devices"),
        state=_version("devices"),
    ),
    "timeline": Entry(
        page="steps",
        height=460,
        make=charts.StepTimeline,
        notebook=lambda: charts.StepTimeline(height=320),
        columns=lambda folds, _: folds.columns("timeline"),
        state=_version("timeline"),
    ),
    "reductions": Entry(
        page="reductions",
        height=220,
        make=charts.ReductionBars,
        notebook=_narrow_reductions,
        columns=lambda folds, _: folds.columns("reductions"),
        state=_version("reductions"),
    ),
    "one_reduction": Entry(
        page="reductions",
        height=420,
        make=_traffic,
        columns=_one_reduction,
        state=lambda folds, view: (
            folds.version("reductions"),
            folds.version("programs"),
            view.reduction,
        ),
    ),
    "placement": Entry(
        page="placement",
        height=440,
        make=charts.PlacementTable,
        notebook=_NarrowPlacements,
        columns=lambda folds, view: part_of_placements(folds.columns("placement"), view.device),
        state=_part("placement"),
    ),
    "closure_lanes": Entry(
        page="servers",
        height=260,
        make=charts.ClosureLanes,
        columns=lambda folds, _: folds.columns("coordination"),
        state=_version("coordination"),
        costly=True,
    ),
    "server_traffic": Entry(
        page="servers",
        height=240,
        make=charts.ServerTraffic,
        columns=lambda folds, _: folds.columns("coordination"),
        state=_version("coordination"),
    ),
    "two_runs": Entry(
        page="compare",
        height=300,
        make=charts.RunComparison,
    ),
}
"""The charts by the names that the page's HTML and notebook views use."""
