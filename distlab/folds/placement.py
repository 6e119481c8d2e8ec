"""Which variable lies on which device, and how many bytes that takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from distlab.events import Event, Placement
from distlab.folds._fold import Columns


class Placements:
    """Variables that were placed and not freed, the largest first.

    Columns (one row for each variable):
      name: list of names.
      layout: list of `"replicated"`, `"per_replica"` or `"single"`.
      shape: list of shapes of one copy, each a list.
      dtype: list of element types.
      bytes: int64 array `(variables, devices)`: 0 where it has no copy.
      device: list of device names, one for each column of `bytes`.
      device_bytes: int64 array `(devices,)`: what all variables take there.
      freed: single number: variables whose memory was given back.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Placement,)

    def __init__(self) -> None:
        self.version = 0
        self._arrays: dict[int, Placement] = {}
        self._devices: dict[str, None] = {}
        self._freed = 0

    def add(self, events: Sequence[Event]) -> None:
        """Takes events, oldest first."""
        for event in events:
            if not isinstance(event, Placement):
                continue
            if event.action == "place":
                self._arrays[event.array] = event
                self._devices.update(dict.fromkeys(event.devices))
            elif self._arrays.pop(event.array, None) is not None:
                self._freed += 1
        self.version += bool(events)

    def columns(self) -> Columns:
        """Returns the columns that the class describes."""
        arrays = sorted(
            self._arrays.values(),
            key=lambda placed: (-sum(placed.bytes_per_device), placed.name, placed.array),
        )
        column = {name: place for place, name in enumerate(self._devices)}
        table = np.zeros((len(arrays), len(column)), np.int64)
        for row, placed in enumerate(arrays):
            for device, size in zip(placed.devices, placed.bytes_per_device, strict=True):
                table[row, column[device]] += size
        return {
            "name": [placed.name for placed in arrays],
            "layout": [placed.layout for placed in arrays],
            "shape": [list(placed.shape) for placed in arrays],
            "dtype": [placed.dtype for placed in arrays],
            "bytes": table,
            "device": list(column),
            "device_bytes": table.sum(axis=0),
            "freed": self._freed,
        }
