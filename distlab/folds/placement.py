"""The device or parameter server of each variable, and its bytes there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable
from typing import ClassVar, Final, NamedTuple, TypedDict

import numpy as np

from distlab.events import ArrayPlace, Compile, Event, Placement, Strategy
from distlab.folds._fold import Fold
from distlab.folds.arrays import MOST_ENTRIES, Ints
from distlab.meshes import blocks

_SERVER: Final = "server "


class Division(NamedTuple):
    """Arrays that a mesh divides alike."""

    spec: blocks.Spec  # Of the largest array, as its name and shape
    name: str
    shape: list[int]
    arrays: int
    bytes: int  # Of all of them on one device


class PlacementColumns(TypedDict):
    """Columns of `Placements`: one row for each variable or part of one, largest variable first.

    The arrays that the largest observed function receives on its mesh follow them. These have one
    column of `bytes`, which stands for all its devices. The mesh that is drawn is that function's,
    or else that of the strategy with the most bytes in divided variables.
    """

    name: list[str]
    layout: list[str]  #: `"replicated"`, `"per_replica"`, `"single"`; of divided ones the spec
    shape: list[list[int]]
    dtype: list[str]
    bytes: Ints  #: Bytes on each device, `(variables, devices)`; 0 where there is no copy
    part: list[list[str]]  #: Part of a divided one on each device, such as `"[0:64, 0:10]"`
    device: list[str]  #: For each column of `bytes`; `server 0` and so on come last
    device_bytes: Ints  #: Bytes of all variables on each device or server
    whole_bytes: Ints  #: The same, if each device with a part had a whole copy
    devices: Ints  #: How many devices each column stands for
    mesh: dict[str, int]  #: Axes of the mesh, empty without one
    function: str  #: The function that receives the mesh's arrays; empty for variables
    divided: list[Division]  #: The ways in which the mesh divides them, most bytes first


class Placements(Fold[PlacementColumns]):
    """Variables that were placed and not freed."""

    KINDS: ClassVar[tuple[type[Event], ...]] = (Placement, Strategy, Compile)

    def __init__(self) -> None:
        self._meshes: dict[int, Strategy] = {}
        self._received: dict[str, Compile] = {}
        self._arrays: dict[int, Placement] = {}
        self._devices: dict[str, None] = {}
        self._servers: set[int] = set()

    def _add(self, event: Event) -> None:
        if isinstance(event, Strategy) and blocks.is_sound((), event.axes):
            self._meshes[event.strategy] = event
        elif (
            isinstance(event, Compile)
            and (mesh := self._meshes.get(event.strategy)) is not None
            and mesh.form == "mesh"
            and blocks.is_sound((), event.mesh)
        ):
            self._received[event.function] = event
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
        total, whole = np.zeros((2, len(column)), np.int64)
        divided: Counter[int] = Counter()
        for row, placed in enumerate(arrays):
            spec, axes = self._division(placed)
            times = math.prod(blocks.cuts(spec, axes))
            if any(spec):
                divided[placed.strategy] += sum(placed.bytes_per_device)
            for device, size in zip(placed.devices, placed.bytes_per_device, strict=True):
                place = column[device if placed.server is None else _server(placed.server)]
                total[place] += size
                whole[place] += size * times
                if row < len(shown):
                    table[row, place] += size
        columns: PlacementColumns = {
            "name": [placed.name for placed in shown],
            "layout": [
                blocks.spec_text(blocks.full_spec(placed.spec, len(placed.shape)))
                if any(placed.spec)
                else placed.layout
                for placed in shown
            ],
            "shape": [list(placed.shape) for placed in shown],
            "dtype": [placed.dtype for placed in shown],
            "bytes": table,
            "part": [self._parts(placed, column) for placed in shown],
            "device": list(column),
            "device_bytes": total,
            "whole_bytes": whole,
            "devices": np.ones(len(column), np.int64),
            "mesh": {},
            "function": "",
            "divided": [],
        }
        if self._received:
            _add_mesh(columns, max(self._received.values(), key=_received_bytes))
        elif divided:
            ((strategy, _),) = divided.most_common(1)
            columns["mesh"] = self._meshes[strategy].axes
            own = [placed for placed in arrays if placed.strategy == strategy]
            columns["divided"] = _divisions(own, columns["mesh"])
        return columns

    def _division(self, placed: Placement) -> tuple[blocks.Spec, blocks.Axes]:
        """Returns the axes that divide each dimension of a variable, and their mesh."""
        mesh = self._meshes.get(placed.strategy)
        spec = None if mesh is None else _spec(placed, mesh.axes)
        return ((), {}) if mesh is None or spec is None else (spec, mesh.axes)

    def _parts(self, placed: Placement, devices: Iterable[str]) -> list[str]:
        """Returns the part of a variable on each device; empty where it is not divided."""
        spec, axes = self._division(placed)
        if not any(spec):
            return []
        texts = blocks.part_texts(placed.shape, spec, axes)
        at = dict(zip(self._meshes[placed.strategy].devices, texts, strict=False))
        return [at.get(name, "") for name in devices]


def _received_bytes(program: Compile) -> int:
    return sum(one.bytes_per_device for one in program.inputs)


def _add_mesh(columns: PlacementColumns, program: Compile) -> None:
    """Adds the arrays that a program receives on its mesh."""
    mesh = program.mesh
    inputs = sorted(program.inputs, key=lambda one: -one.bytes_per_device)
    old, sizes = columns["bytes"], np.array([one.bytes_per_device for one in inputs], np.int64)
    columns["bytes"] = np.zeros((len(old) + len(sizes), old.shape[1] + 1), np.int64)
    columns["bytes"][: len(old), :-1], columns["bytes"][len(old) :, -1] = old, sizes
    count = math.prod(mesh.values())
    columns["device"].append(f"each of {count}")
    columns["part"] = [[*one, ""] if one else [] for one in columns["part"]] + [[] for _ in inputs]
    for name in ("device_bytes", "whole_bytes"):
        columns[name] = np.append(columns[name], sizes.sum())
    columns["devices"] = np.append(columns["devices"], count)
    columns["mesh"], columns["function"] = mesh, program.function
    columns["divided"] = _divisions(inputs, mesh)
    for one in inputs:
        spec = _spec(one, mesh)
        columns["name"].append(one.name)
        columns["layout"].append("not on the mesh" if spec is None else blocks.spec_text(spec))
        columns["shape"].append(list(one.shape))
        columns["dtype"].append(one.dtype)


def _divisions(arrays: Iterable[ArrayPlace | Placement], mesh: blocks.Axes) -> list[Division]:
    """Returns the ways in which a mesh divides arrays, most bytes first."""
    found: dict[object, Division] = {}
    for one in arrays:
        spec, sizes = _spec(one, mesh), one.bytes_per_device
        if spec is not None:
            key = tuple(names for names in spec if names)
            known = found.get(key, Division(spec, one.name, list(one.shape), 0, 0))
            size = known.bytes + (sizes if isinstance(sizes, int) else max(sizes, default=0))
            found[key] = known._replace(arrays=known.arrays + 1, bytes=size)
    return sorted(found.values(), key=lambda one: -one.bytes)


def _spec(one: ArrayPlace | Placement, mesh: blocks.Axes) -> blocks.Spec | None:
    spec = None if one.spec is None else blocks.full_spec(one.spec, len(one.shape))
    return spec if spec is not None and blocks.is_sound(spec, mesh) else None


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
