"""Parts of columns with too many rows to draw: some devices or groups of them, some replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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
      first: Number of the first device of a part; the last `most` devices when it is
        higher. None for all devices, in groups of neighbours.
      most: How many rows; columns of no more devices are returned unchanged.

    Returns:
      The columns with `device`, `busy`, `now` and `mean` of these rows. A group has the mean
      shares of its devices.
    """
    names = devices["device"]
    if len(names) <= most:
        return devices
    groups = _groups(len(names), first, most)
    return {
        **devices,
        "device": _names(names, *groups),
        "busy": _means(devices["busy"], *groups),
        "now": _means(devices["now"], *groups),
        "mean": _means(devices["mean"], *groups),
    }


def part_of_placements(placements: PlacementColumns, first: int | None = None) -> PlacementColumns:
    """Returns the columns of `Placements` for at most 64 devices or groups of them.

    Args:
      placements: Columns of all devices.
      first: As in `part_of_devices`.

    Returns:
      The columns with `device` and `bytes` of these rows; `device_bytes` has all
      devices. A group has the mean bytes of its devices, rounded to whole bytes.
    """
    names = placements["device"]
    if len(names) <= MOST_ROWS:
        return placements
    groups = _groups(len(names), first, MOST_ROWS)
    means = np.rint(_means(placements["bytes"], *groups)).astype(np.int64)
    return {**placements, "device": _names(names, *groups), "bytes": means}


def part_of_captures(captures: CaptureColumns, first: int | None = None) -> CaptureColumns:
    """Returns the columns of `Captures` for at most 64 devices.

    Args:
      captures: Columns of all devices.
      first: As in `part_of_devices`, but with None for the device of each group of
        neighbours that computed longest: the others wait for it.

    Returns:
      The columns with `device`, the shares and `spans` of these devices.
    """
    names = captures["device"]
    if len(names) <= MOST_ROWS:
        return captures
    compute = captures["compute"]
    rows = [
        int(begin + compute[begin : begin + count].argmax())
        for begin, count in zip(*_groups(len(names), first, MOST_ROWS), strict=True)
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


def _groups(devices: int, first: int | None, most: int) -> tuple[Ints, Ints]:
    """Returns the index of each row's first device, and how many devices share the row."""
    if first is not None:
        begin = min(first, devices - most)
        return np.arange(begin, begin + most), np.ones(most, np.int64)
    begins = np.arange(0, devices, -(-devices // most))
    return begins, np.diff(np.append(begins, devices))


def _names(names: Sequence[str], begins: Ints, counts: Ints) -> list[str]:
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

    Returns:
      The batch with these replicas and their examples alone, and with `whole_size`.
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
    """Returns the batches of one dataset.

    Args:
      batches: All batches.
      dataset: The dataset's number; None for all datasets.

    Returns:
      The columns with the rows of these batches; the totals are those of all.
    """
    if dataset is None:
        return batches
    rows = batches["dataset"] == dataset
    return {
        **batches,
        "number": batches["number"][rows],
        "epoch": batches["epoch"][rows],
        "batch": batches["batch"][rows],
        "dataset": batches["dataset"][rows],
        "examples": batches["examples"][rows],
        "uneven": batches["uneven"][rows],
        "wait_ms": batches["wait_ms"][rows],
        "transfer_ms": batches["transfer_ms"][rows],
    }
