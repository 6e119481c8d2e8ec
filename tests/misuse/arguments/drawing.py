"""Arguments of folds and charts."""

from __future__ import annotations

import functools
from typing import Any

from distlab import charts, folds
from distlab.folds import Folds
from distlab.recording.ring import Ring
from tests.misuse.table import Call, row
from tests.misuse.world import World

_CHARTS = (
    charts.BatchHistory,
    charts.CapturedSpans,
    charts.DeviceShares,
    charts.PlacementTable,
    charts.ProcessMemory,
    charts.Rates,
    charts.ReductionBars,
    charts.StepTimeline,
    charts.loss_lines,
    charts.other_lines,
)
_CHARTS_OF_NOTHING = (charts.BatchTiles, charts.RunComparison, charts.Traffic)
"""Charts that show None, too."""


def _updating(chart: Any) -> Call:
    made = functools.cache(chart)  # what is refused leaves it as it was
    return lambda _, v: made().update(v)


for chart in _CHARTS:
    row(f"charts.{chart.__name__}.update")(_updating(chart))
for drawing in _CHARTS_OF_NOTHING:
    row(f"charts.{drawing.__name__}.update", "none")(_updating(drawing))


_timeline = functools.cache(charts.StepTimeline)


@row("charts.StepTimeline.zoom", "none")
def _(w: World, v: Any) -> None:
    _timeline().zoom(v)


@row("charts.traffic_row.reductions")
def _(w: World, v: Any) -> object:
    return charts.traffic_row(v, 0)


@row("charts.traffic_row.place", "big huge")
def _(w: World, v: Any) -> object:
    return charts.traffic_row(Folds().columns("reductions"), v)


@row("charts.data_patch.source")
def _(w: World, v: Any) -> object:
    return charts.data_patch(v)


@row("Folds.read.source")
def _(w: World, v: Any) -> object:
    return Folds().read(v)


@row("Folds.read.limit", "big huge")
def _(w: World, v: Any) -> object:
    return Folds().read(Ring(), v)


@row("Folds.add.events", "empty_list empty_tuple", tells="generator")
def _(w: World, v: Any) -> None:
    Folds().add(v)


@row("Folds.columns.name")
def _(w: World, v: Any) -> object:
    return Folds().columns(v)


@row("Folds.version.name")
def _(w: World, v: Any) -> object:
    return Folds().version(v)


@row("Folds.batch.number", "none big huge")
def _(w: World, v: Any) -> object:
    return Folds().batch(v)


@row("Folds.batch.dataset", "none big huge")
def _(w: World, v: Any) -> object:
    return Folds().batch(dataset=v)


@row("folds.compare.first")
def _(w: World, v: Any) -> object:
    return folds.compare(v, Folds())


@row("folds.compare.names")
def _(w: World, v: Any) -> object:
    return folds.compare(Folds(), Folds(), v)


@row("folds.part_of_batch.detail", "none")
def _(w: World, v: Any) -> object:
    return folds.part_of_batch(v)


@row("folds.part_of_batches.batches")
def _(w: World, v: Any) -> object:
    return folds.part_of_batches(v)


@row("folds.part_of_devices.devices")
def _(w: World, v: Any) -> object:
    return folds.part_of_devices(v)


@row("folds.part_of_devices.first", "none big huge")
def _(w: World, v: Any) -> object:
    return folds.part_of_devices(Folds().columns("devices"), v)


@row("folds.part_of_devices.most", "big huge")
def _(w: World, v: Any) -> object:
    return folds.part_of_devices(Folds().columns("devices"), most=v)


@row("folds.part_of_placements.placements")
def _(w: World, v: Any) -> object:
    return folds.part_of_placements(v)


@row("folds.part_of_captures.captures")
def _(w: World, v: Any) -> object:
    return folds.part_of_captures(v)


@row("folds.window.events", "empty_list empty_tuple", tells="generator")
def _(w: World, v: Any) -> object:
    return folds.window(v, 0, 0.0, 1.0)


@row("folds.window.end_s", "fraction big")
def _(w: World, v: Any) -> object:
    return folds.window([], 0, 0.0, v)


@row("folds.window.cells", tells="big huge")
def _(w: World, v: Any) -> object:
    return folds.window([], 0, 0.0, 1.0, cells=v)
