"""Parts of columns with too many rows to draw: some devices or groups of them, some replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from distlab.folds.accepted import require_columns, require_number
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

    Raises:
      ArgumentTypeError: `devices` are other columns, or a number is no whole number.
      ArgumentValueError: A number is too small.
    """
    require_columns("part_of_devices", devices, DeviceColumns, "Folds.columns('devices')")
    require_number("part_of_devices", "first", first)
    require_number("part_of_devices", "most", most, least=1, optional=False)
    names = devices["device"]
    if len(names) <= most:
        return devices
    if first is not None:
        chosen = _chosen(len(names), first, most)
        return {
            **devices,
            "device": names[chosen],
            "busy": devices["busy"][:, chosen],
            "now": devices["now"][chosen],
            "mean": devices["mean"][chosen],
        }
    begins, counts = _groups(len(names), most)
    return {
        **devices,
        "device": _group_names(names, begins, counts),
        "busy": _means(devices["busy"], begins, counts),
        "now": _means(devices["now"], begins, counts),
        "mean": _means(devices["mean"], begins, counts),
    }


def part_of_placements(placements: PlacementColumns, first: int | None = None) -> PlacementColumns:
    """Returns the columns of `Placements` for at most 64 devices or groups of them.

    Args:
      placements: Columns of all devices.
      first: As in `part_of_devices`.

    Returns:
      The columns with `device` and `bytes` of these rows; `device_bytes` has all
      devices. A group has the mean bytes of its devices, rounded to whole bytes.

    Raises:
      ArgumentTypeError: `placements` are other columns, or a number is no whole number.
      ArgumentValueError: A number is too small.
    """
    require_columns("part_of_placements", placements, PlacementColumns, "placement")
    require_number("part_of_placements", "first", first)
    names = placements["device"]
    if len(names) <= MOST_ROWS:
        return placements
    sizes = placements["bytes"]
    if first is not None:
        chosen = _chosen(len(names), first, MOST_ROWS)
        return {**placements, "device": names[chosen], "bytes": sizes[:, chosen]}
    begins, counts = _groups(len(names), MOST_ROWS)
    means = np.rint(_means(sizes, begins, counts)).astype(np.int64)
    return {**placements, "device": _group_names(names, begins, counts), "bytes": means}


def part_of_captures(captures: CaptureColumns, first: int | None = None) -> CaptureColumns:
    """Returns the columns of `Captures` for at most 64 devices.

    Args:
      captures: Columns of all devices.
      first: As in `part_of_devices`, but with None for the device of each group of
        neighbours that computed longest: the others wait for it.

    Returns:
      The columns with `device`, the shares and `spans` of these devices.

    Raises:
      ArgumentTypeError: `captures` are other columns, or a number is no whole number.
      ArgumentValueError: A number is too small.
    """
    require_columns("part_of_captures", captures, CaptureColumns, "Folds.columns('captures')")
    require_number("part_of_captures", "first", first)
    names = captures["device"]
    if len(names) <= MOST_ROWS:
        return captures
    if first is not None:
        rows = list(range(*_chosen(len(names), first, MOST_ROWS).indices(len(names))))
    else:
        begins, counts = _groups(len(names), MOST_ROWS)
        compute = captures["compute"]
        rows = [
            int(begin + compute[begin : begin + count].argmax())
            for begin, count in zip(begins, counts, strict=True)
        ]
    return {
        **captures,
        "device": [names[row] for row in rows],
        "compute": captures["compute"][rows],
        "waiting": captures["waiting"][rows],
        "copy": captures["copy"][rows],
        "idle": captures["idle"][rows],
        "spans": [captures["spans"][row] for row in rows],
    }


def _chosen(devices: int, first: int, most: int) -> slice:
    begin = min(max(0, first), devices - most)
    return slice(begin, begin + most)


def _groups(devices: int, most: int) -> tuple[Ints, Ints]:
    """Returns the index of each group's first device, and each group's size."""
    begins = np.arange(0, devices, -(-devices // most))
    return begins, np.diff(np.append(begins, devices))


def _group_names(names: Sequence[str], begins: Ints, counts: Ints) -> list[str]:
    return [
        f"{names[begin]} to {names[begin + count - 1]}" if count > 1 else names[begin]
        for begin, count in zip(begins.tolist(), counts.tolist(), strict=True)
    ]


def _means(amounts: npt.NDArray[np.number], begins: Ints, counts: Ints) -> Floats:
    means: Floats = np.add.reduceat(amounts.astype(np.float64), begins, axis=-1) / counts
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

    Raises:
      ArgumentTypeError: `detail` is no batch, or a number no whole number.
      ArgumentValueError: A number is too small.
    """
    require_number("part_of_batch", "first", first, optional=False)
    require_number("part_of_batch", "most", most, least=1, optional=False)
    if detail is not None:
        require_columns("part_of_batch", detail, BatchDetail, "Folds.batch()")
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

    Raises:
      ArgumentTypeError: `batches` are no columns of batches, or `dataset` is no number.
      ArgumentValueError: `dataset` is negative.
    """
    require_columns("part_of_batches", batches, BatchColumns, "Folds.columns('batches')")
    require_number("part_of_batches", "dataset", dataset)
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
