"""All charts of pages and notebook views: how each is made, and which data it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from distlab import charts
from distlab.charts import BatchTiles, Chart, Traffic, TrafficRow
from distlab.folds import (
    BatchDetail,
    FoldName,
    Folds,
    part_of_batch,
    part_of_batches,
    part_of_captures,
    part_of_devices,
    part_of_placements,
)
from distlab.page.view import View

_MOST_WIDE: Final = {"tiles": 680, "traffic": 900}
"""The most pixels that the tiles of a batch, and the drawing of a reduction, are wide."""

_Make: TypeAlias = Callable[..., Chart[Any]]
"""Makes an empty chart of a height."""


@dataclass(frozen=True)
class Entry:
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
    make: _Make
    columns: Callable[[Folds, View], Any] | None = None
    state: Callable[[Folds, View], object] = lambda _folds, _view: None
    notebook: Callable[[], Chart[Any]] | None = None
    costly: bool = False


def _whole(page: str, height: int, make: _Make, fold: FoldName, **options: Any) -> Entry:
    """Returns the entry of a chart of a whole fold."""
    return Entry(
        page,
        height,
        make,
        columns=lambda folds, _: folds.columns(fold),
        state=lambda folds, _: folds.version(fold),
        **options,
    )


def _part(
    page: str,
    height: int,
    make: _Make,
    fold: FoldName,
    part: Callable[[Any, int | None], object],
    **options: Any,
) -> Entry:
    """Returns the entry of a chart of some devices of a fold."""
    return Entry(
        page,
        height,
        make,
        columns=lambda folds, view: part(folds.columns(fold), view.device),
        state=lambda folds, view: (folds.version(fold), view.device),
        **options,
    )


def _tiles(*, height: int) -> BatchTiles:
    made = BatchTiles(height=height)
    made.root.max_width = _MOST_WIDE["tiles"]
    return made


def _traffic(*, height: int) -> Traffic:
    made = Traffic(height=height)
    made.root.max_width = _MOST_WIDE["traffic"]
    return made


def _state_of(detail: BatchDetail | None, replica: int = 0) -> object:
    """Returns which batch is shown; a preview may come later than its batch."""
    return detail and (detail["number"], int(detail["known"].sum()), replica)


def _one_reduction(folds: Folds, view: View) -> TrafficRow | None:
    reductions, header = folds.columns("reductions"), folds.columns("header")
    own = reductions["participants"][view.reduction : view.reduction + 1] == [
        len(header["replicas"])
    ]
    devices = header["replicas"] if own else header["places"]
    return charts.traffic_row(reductions, view.reduction, devices=devices)


CHARTS: Final[Mapping[str, Entry]] = {
    "loss": _whole(
        "overview",
        320,
        charts.loss_lines,
        "metrics",
        notebook=lambda: charts.loss_lines(height=220),
    ),
    "newest": Entry(
        "overview",
        320,
        _tiles,
        columns=lambda folds, _: part_of_batch(folds.newest_of_main()),
        state=lambda folds, _: _state_of(folds.newest_of_main()),
        costly=True,
    ),
    "rates": _whole(
        "overview", 210, charts.Rates, "steps", notebook=lambda: charts.Rates(height=200)
    ),
    "others": _whole("overview", 210, charts.other_lines, "metrics", costly=True),
    "batches": Entry(
        "batches",
        580,
        _tiles,
        columns=lambda folds, view: part_of_batch(
            folds.batch(view.batch, view.dataset), view.replica
        ),
        state=lambda folds, view: _state_of(folds.batch(view.batch, view.dataset), view.replica),
        notebook=lambda: BatchTiles(height=330),
        costly=True,
    ),
    "history": Entry(
        "batches",
        240,
        charts.BatchHistory,
        columns=lambda folds, view: part_of_batches(folds.columns("batches"), view.dataset),
        state=lambda folds, view: (folds.version("batches"), view.dataset),
    ),
    "devices": _part(
        "devices",
        340,
        charts.DeviceShares,
        "devices",
        part_of_devices,
        notebook=lambda: charts.DeviceShares(height=240),
    ),
    "captured": Entry(
        "devices",
        300,
        charts.CapturedSpans,
        columns=lambda folds, view: part_of_captures(folds.capture(view.capture), view.device),
        state=lambda folds, view: (folds.version("captures"), view.capture, view.device),
        notebook=lambda: charts.CapturedSpans(height=260),
    ),
    "memory": _whole("devices", 210, charts.ProcessMemory, "devices"),
    "timeline": _whole(
        "steps",
        460,
        charts.StepTimeline,
        "timeline",
        notebook=lambda: charts.StepTimeline(height=320),
    ),
    "reductions": _whole(
        "reductions",
        220,
        charts.ReductionBars,
        "reductions",
        notebook=lambda: charts.ReductionBars(height=130),
    ),
    "axes": _whole("reductions", 150, charts.AxisBars, "reductions"),
    "one_reduction": Entry(
        "reductions",
        420,
        _traffic,
        columns=_one_reduction,
        state=lambda folds, view: (
            folds.version("reductions"),
            folds.version("header"),
            view.reduction,
        ),
    ),
    "placement": _part(
        "placement",
        440,
        charts.PlacementTable,
        "placement",
        part_of_placements,
        notebook=lambda: charts.PlacementTable(height=260, narrow=True),
    ),
    "closure_lanes": _whole("servers", 260, charts.ClosureLanes, "coordination", costly=True),
    "server_traffic": _whole("servers", 240, charts.ServerTraffic, "coordination"),
    "compared_runs": Entry("compare", 300, charts.RunComparison),
}
"""The charts by the names that the page's HTML and notebook views use."""
