"""Which variable lies on which device, and its bytes there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypedDict

import numpy as np

from distlab.events import Event, Placement
from distlab.folds.arrays import Ints


class PlacementColumns(TypedDict):
    """Columns of `Placements`: one row for each variable, largest first.

    Attributes:
      name: Names of the variables.
      layout: `"replicated"`, `"per_replica"` or `"single"`.
      shape: Shapes of one copy.
      dtype: Element types.
      bytes: Bytes on each device, `(variables, devices)`; 0 where there is no copy.
      device: Names of the devices, one for each column of `bytes`.
      device_bytes: Bytes of all variables on each device.
    """

    name: list[str]
    layout: list[str]
    shape: list[list[int]]
    dtype: list[str]
    bytes: Ints
    device: list[str]
    device_bytes: Ints


class Placements:
    """Variables that were placed and not freed."""

    KINDS: ClassVar[tuple[type[Event], ...]] = (Placement,)

    def __init__(self) -> None:
        self.version = 0
        self._arrays: dict[int, Placement] = {}
        self._devices: dict[str, None] = {}

    def add(self, events: Sequence[Event]) -> None:
        """Adds events, oldest first."""
        for event in events:
            if not isinstance(event, Placement):
                continue
            if event.action == "place":
                self._arrays[event.array] = event
                self._devices.update(dict.fromkeys(event.devices))
            else:
                self._arrays.pop(event.array, None)
        self.version += bool(events)

    def columns(self) -> PlacementColumns:
        """Returns the variables that are placed now."""
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
        }
