"""Very many devices: neighbours as one row, or some of them by themselves."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from distlab.folds._fold import Columns

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
        begin = min(max(0, first), len(names) - most)
        chosen = slice(begin, begin + most)
        rows = {name: np.asarray(devices[name])[..., chosen] for name in ("busy", "now")}
        return {**devices, "device": names[chosen], **rows}
    begins = np.arange(0, len(names), -(-len(names) // most))
    counts = np.diff(np.append(begins, len(names)))
    return {
        **devices,
        "device": [
            f"{names[begin]} to {names[begin + count - 1]}" if count > 1 else names[begin]
            for begin, count in zip(begins.tolist(), counts.tolist(), strict=True)
        ],
        "busy": _means(devices["busy"], begins, counts),
        "now": _means(devices["now"], begins, counts),
    }


def _means(shares: Any, begins: Any, counts: Any) -> Any:
    return np.add.reduceat(np.asarray(shares, np.float64), begins, axis=-1) / counts
