"""The device or parameter server of each variable, and its bytes there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import ClassVar, Final, TypedDict

import numpy as np

from distlab.events import Event, Placement
from distlab.folds._fold import Fold
from distlab.folds.arrays import MOST_ENTRIES, Ints

_SERVER: Final = "server "


class PlacementColumns(TypedDict):
    """Columns of `Placements`: one row for each variable or part of one, largest variable first."""

    name: list[str]
    layout: list[str]  #: `"replicated"`, `"per_replica"` or `"single"`
    shape: list[list[int]]
    dtype: list[str]
    bytes: Ints  #: Bytes on each device, `(variables, devices)`; 0 where there is no copy
    device: list[str]  #: For each column of `bytes`; `server 0` and so on come last
    device_bytes: Ints  #: Bytes of all variables on each device or server


class Placements(Fold[PlacementColumns]):
    """Variables that were placed and not freed."""

    KINDS: ClassVar[tuple[type[Event], ...]] = (Placement,)

    def __init__(self) -> None:
        self._arrays: dict[int, Placement] = {}
        self._devices: dict[str, None] = {}
        self._servers: set[int] = set()

    def _add(self, event: Event) -> None:
        if not isinstance(event, Placement):
            return
        if event.action == "place":
            self._arrays[event.array] = event
            if event.server is None:
                self._devices.update(dict.fromkeys(event.devices))
            else:
                self._servers.add(event.server)
        else:
            self._arrays.pop(event.array, None)

    def columns(self) -> PlacementColumns:
        """Returns the variables that are placed now."""
        arrays = _in_order(self._arrays.values())
        servers = [_server(number) for number in sorted(self._servers)]
        column = {name: place for place, name in enumerate([*self._devices, *servers])}
        # A damaged file may name as many devices as arrays.
        shown = arrays[: MOST_ENTRIES // max(1, len(column))]
        table = np.zeros((len(shown), len(column)), np.int64)
        total = np.zeros(len(column), np.int64)
        for row, placed in enumerate(arrays):
            for device, size in zip(placed.devices, placed.bytes_per_device, strict=True):
                place = column[device if placed.server is None else _server(placed.server)]
                total[place] += size
                if row < len(shown):
                    table[row, place] += size
        return {
            "name": [placed.name for placed in shown],
            "layout": [placed.layout for placed in shown],
            "shape": [list(placed.shape) for placed in shown],
            "dtype": [placed.dtype for placed in shown],
            "bytes": table,
            "device": list(column),
            "device_bytes": total,
        }


def _in_order(arrays: Collection[Placement]) -> list[Placement]:
    """Returns the largest variables first, with the parts of each together."""
    total: Counter[tuple[str, int]] = Counter()
    for placed in arrays:
        total[_whole(placed)] += sum(placed.bytes_per_device)
    return sorted(
        arrays,
        key=lambda placed: (-total[_whole(placed)], *_whole(placed), placed.array),
    )


def _whole(placed: Placement) -> tuple[str, int]:
    """Returns what the parts of a variable have in common, and no other variable has."""
    name, _, part = placed.name.rpartition("/part_")
    if placed.server is None or not part.isdecimal():
        return placed.name, placed.array
    return name, placed.strategy


def is_server(name: str) -> bool:
    """Returns whether a name in the column `device` is that of a parameter server."""
    return name.startswith(_SERVER)


def _server(number: int) -> str:
    return f"{_SERVER}{number}"
