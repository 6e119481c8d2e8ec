"""Very many devices: neighbours as one row, or some of them by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from distlab.folds._fold import Columns
from distlab.folds.captures import SORTS

MOST_ROWS: Final = 64
"""Devices that get a row each; of more, neighbours share one."""


def part_of_devices(devices: Columns, first: int | None = None, most: int = MOST_ROWS) -> Columns:
    """Returns the columns of `Devices` for at most so many rows.

    Args:
      devices: what `Devices.columns` returned.
      first: number of the first device to show by itself, cut to those there are;
        None for all devices, in groups of neighbours.
      most: how many rows; with no more devices the columns are returned as they are.

    Returns:
      `device`, `busy` and `now` of the rows, and all other columns. A group's shares
      are the means of its devices.
    """
    names = devices["device"]
    if len(names) <= most:
        return devices
    if first is not None:
        chosen = _chosen(len(names), first, most)
        rows = {name: np.asarray(devices[name])[..., chosen] for name in ("busy", "now")}
        return {**devices, "device": names[chosen], **rows}
    begins, counts = _groups(len(names), most)
    return {
        **devices,
        "device": _group_names(names, begins, counts),
        "busy": _means(devices["busy"], begins, counts),
        "now": _means(devices["now"], begins, counts),
    }


def part_of_placements(placements: Columns, first: int | None = None) -> Columns:
    """Returns the columns of `Placements` for at most 64 devices or groups of them.

    Args:
      placements: what `Placements.columns` returned.
      first: as in `part_of_devices`.

    Returns:
      `device` and `bytes` of the rows, and all other columns, `device_bytes` of all
      devices. A group's bytes are the mean of its devices, rounded to whole bytes.
    """
    names = placements["device"]
    if len(names) <= MOST_ROWS:
        return placements
    sizes = np.asarray(placements["bytes"], np.int64).reshape(-1, len(names))
    if first is not None:
        chosen = _chosen(len(names), first, MOST_ROWS)
        return {**placements, "device": names[chosen], "bytes": sizes[:, chosen]}
    begins, counts = _groups(len(names), MOST_ROWS)
    means = np.rint(_means(sizes, begins, counts)).astype(np.int64)
    return {**placements, "device": _group_names(names, begins, counts), "bytes": means}


def part_of_captures(captures: Columns, first: int | None = None) -> Columns:
    """Returns the columns of `Captures` for at most 64 devices.

    Args:
      captures: what `Captures.columns` returned.
      first: as in `part_of_devices`, but with None for the device of each group of
        neighbours that computed most: it is the one that others wait for.

    Returns:
      `device`, the shares and `spans` of the rows, and all other columns.
    """
    names = captures["device"]
    if len(names) <= MOST_ROWS:
        return captures
    rows: Sequence[int]
    if first is not None:
        rows = range(*_chosen(len(names), first, MOST_ROWS).indices(len(names)))
    else:
        begins, counts = _groups(len(names), MOST_ROWS)
        compute = np.asarray(captures["compute"])
        rows = [
            int(begin + compute[begin : begin + count].argmax())
            for begin, count in zip(begins, counts, strict=True)
        ]
    shares = {sort: np.asarray(captures[sort])[list(rows)] for sort in SORTS}
    return {
        **captures,
        **shares,
        "device": [names[row] for row in rows],
        "spans": [captures["spans"][row] for row in rows],
    }


def _chosen(devices: int, first: int, most: int) -> slice:
    begin = min(max(0, first), devices - most)
    return slice(begin, begin + most)


def _groups(devices: int, most: int) -> tuple[Any, Any]:
    """Returns where groups of neighbours begin, and how many devices each has."""
    begins = np.arange(0, devices, -(-devices // most))
    return begins, np.diff(np.append(begins, devices))


def _group_names(names: Sequence[str], begins: Any, counts: Any) -> list[str]:
    return [
        f"{names[begin]} to {names[begin + count - 1]}" if count > 1 else names[begin]
        for begin, count in zip(begins.tolist(), counts.tolist(), strict=True)
    ]


def _means(shares: Any, begins: Any, counts: Any) -> Any:
    return np.add.reduceat(np.asarray(shares, np.float64), begins, axis=-1) / counts
