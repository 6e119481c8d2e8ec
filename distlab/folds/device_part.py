"""Parts of columns with too many rows to draw: some devices or groups of them, some replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from distlab.folds.arrays import Floats, Ints
from distlab.folds.batches import BatchColumns, BatchDetail
from distlab.folds.devices import CaptureColumns, DeviceColumns
from distlab.folds.placement import PlacementColumns

MOST_ROWS: Final = 64
"""Most devices that have a row each; of more, neighbours share one."""


def part_of_devices(
    devices: DeviceColumns, first: int | None = None, most: int = MOST_ROWS
) -> DeviceColumns:
    """Returns the columns of `Devices` with at most `most` rows.

    Args:
      devices: Columns of all devices.
      first: Number of the first device of a part; None for all devices, in groups of neighbours
        that have the mean share of their devices.
      most: How many rows; columns of no more devices are returned unchanged.
    """
    names = devices["device"]
    if len(names) <= most:
        return devices
    rows = groups(len(names), first, most)
    return {
        **devices,
        "device": group_names(names, *rows),
        "busy": _means(devices["busy"], *rows),
        "now": _means(devices["now"], *rows),
        "mean": _means(devices["mean"], *rows),
        "computes": _means(devices["computes"], *rows),
    }


def part_of_placements(placements: PlacementColumns, first: int | None = None) -> PlacementColumns:
    """Returns the columns of `Placements` for at most 64 devices, or groups and their mean bytes.

    Args:
      placements: Columns of all devices.
      first: As in `part_of_devices`.
    """
    names = placements["device"]
    if len(names) <= MOST_ROWS:
        return placements
    rows = groups(len(names), first, MOST_ROWS)
    means = np.rint(_means(placements["bytes"], *rows)).astype(np.int64)
    counts = placements["devices"][rows[0]] * rows[1]
    whole = np.rint(_means(placements["whole_bytes"], *rows)).astype(np.int64)
    return {
        **placements,
        "device": group_names(names, *rows),
        "bytes": means,
        "part": [[] for _ in placements["part"]],
        "whole_bytes": whole,
        "devices": counts,
    }


def part_of_captures(captures: CaptureColumns, first: int | None = None) -> CaptureColumns:
    """Returns the columns of `Captures` for at most 64 devices.

    Args:
      captures: Columns of all devices.
      first: As in `part_of_devices`, but with None for the device of each group of
        neighbours that computed longest: the others wait for it.
    """
    names = captures["device"]
    if len(names) <= MOST_ROWS:
        return captures
    compute = captures["compute"]
    rows = [
        int(begin + compute[begin : begin + count].argmax())
        for begin, count in zip(*groups(len(names), first, MOST_ROWS), strict=True)
    ]
    return {
        **captures,
        "device": [names[row] for row in rows],
        "compute": compute[rows],
        "waiting": captures["waiting"][rows],
        "copy": captures["copy"][rows],
        "idle": captures["idle"][rows],
        "spans": [captures["spans"][row] for row in rows],
    }


def groups(devices: int, first: int | None, most: int) -> tuple[Ints, Ints]:
    """Returns the index of each row's first device, and how many devices share the row."""
    if first is not None:
        begin = min(first, devices - most)
        return np.arange(begin, begin + most), np.ones(most, np.int64)
    begins = np.arange(0, devices, max(1, -(-devices // most)))
    return begins, np.diff(np.append(begins, devices))


def group_names(names: Sequence[str], begins: Ints, counts: Ints) -> list[str]:
    """Returns a name for each row: a device, or the first and the last of a group."""
    return [
        f"{names[begin]} to {names[begin + count - 1]}" if count > 1 else names[begin]
        for begin, count in zip(begins.tolist(), counts.tolist(), strict=True)
    ]


def _means(amounts: npt.NDArray[np.number], begins: Ints, counts: Ints) -> Floats:
    kept = amounts[..., : begins[-1] + counts[-1]].astype(np.float64)
    means: Floats = np.add.reduceat(kept, begins, axis=-1) / counts
    return means


MOST_DRAWN: Final = 32
"""Most replicas of a batch that are drawn at once."""


def part_of_batch(
    detail: BatchDetail | None, first: int = 0, most: int = MOST_DRAWN
) -> BatchDetail | None:
    """Returns a batch as some neighbouring replicas received it.

    Args:
      detail: The batch, or None.
      first: Number of the first replica; the last `most` replicas when it is higher.
      most: How many replicas; a batch with no more is returned unchanged.
    """
    if detail is None or len(detail["replica"]) <= most:
        return detail
    first = min(first, len(detail["replica"]) - most)
    last = first + most
    begin, end = sum(detail["size"][:first]), sum(detail["size"][:last])
    index = detail["index"]
    return {
        **detail,
        "replica": detail["replica"][first:last],
        "size": detail["size"][first:last],
        "whole_size": sum(detail["size"]),
        "index": None if index is None else index[begin:end],
        "pixels": detail["pixels"][begin:end],
        "known": detail["known"][begin:end],
        "label": detail["label"][begin:end],
    }


def part_of_batches(batches: BatchColumns, dataset: int | None = None) -> BatchColumns:
    """Returns the rows of one dataset; the totals are those of all.

    Args:
      batches: All batches.
      dataset: The dataset's number; None for all datasets.
    """
    if dataset is None:
        return batches
    rows = batches["dataset"] == dataset
    arrays = {name: one[rows] for name, one in batches.items() if isinstance(one, np.ndarray)}
    return cast("BatchColumns", batches | arrays)
