"""Pure folds: events go in, columns for charts come out.

`Folds` feeds all of them from one cursor. Each fold is one idea in one file: it knows
events and nothing that draws, and its file has the `TypedDict` of its columns.
"""

from __future__ import annotations

from distlab.folds._fold import Columns, Fold
from distlab.folds._folds import FoldName, Folds
from distlab.folds.batches import BatchColumns, BatchDetail, Batches
from distlab.folds.comparison import ComparisonColumns, compare
from distlab.folds.coordination import Coordination, CoordinationColumns
from distlab.folds.device_part import (
    part_of_batch,
    part_of_batches,
    part_of_captures,
    part_of_devices,
    part_of_placements,
)
from distlab.folds.devices import CaptureColumns, Captures, DeviceColumns, Devices
from distlab.folds.evidence import Evidence, EvidenceColumns
from distlab.folds.header import Header, HeaderColumns, LoopColumns, Loops
from distlab.folds.joining import Join
from distlab.folds.metrics import MetricColumns, Metrics
from distlab.folds.placement import PlacementColumns, Placements
from distlab.folds.programs import ProgramColumns, Programs
from distlab.folds.reductions import ReductionColumns, Reductions
from distlab.folds.steps import Pace, StepColumns, Steps, pace_of
from distlab.folds.timeline import Timeline, TimelineColumns, window
from distlab.folds.workers import WorkerColumns, Workers

__all__ = [
    "BatchColumns",
    "BatchDetail",
    "Batches",
    "CaptureColumns",
    "Captures",
    "Columns",
    "ComparisonColumns",
    "Coordination",
    "CoordinationColumns",
    "DeviceColumns",
    "Devices",
    "Evidence",
    "EvidenceColumns",
    "Fold",
    "FoldName",
    "Folds",
    "Header",
    "HeaderColumns",
    "Join",
    "LoopColumns",
    "Loops",
    "MetricColumns",
    "Metrics",
    "Pace",
    "PlacementColumns",
    "Placements",
    "ProgramColumns",
    "Programs",
    "ReductionColumns",
    "Reductions",
    "StepColumns",
    "Steps",
    "Timeline",
    "TimelineColumns",
    "WorkerColumns",
    "Workers",
    "compare",
    "pace_of",
    "part_of_batch",
    "part_of_batches",
    "part_of_captures",
    "part_of_devices",
    "part_of_placements",
    "window",
]
