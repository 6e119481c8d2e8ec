"""Replica groups as XLA writes them, and the mesh axes along which they run.

A device is its position in the program, which is its position in the mesh: XLA may write names of
its own for a mesh's axes, so names in the text mean nothing.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from distlab.meshes.blocks import Axes, Ints

_IOTA: Final = re.compile(r"^\(?\[([\d,]+)\](?:<=\[([\d,]+)\])?(?:T\(([\d,]+)\))?")
_MESH: Final = re.compile(r"^mesh\[(.*?)\](?:,\s*device_ids=\((.*)\))?\s*\{(.*?)\}$")
_AXIS: Final = re.compile(r"'([^']+)'=(\d+)")
_PART: Final = re.compile(r"'([^']+)'(?::\((\d+)\)(\d+))?")
_ROW: Final = re.compile(r"\{([\d,]+)\}")


class Along(NamedTuple):
    """The part of a mesh in which a collective runs."""

    axes: tuple[str, ...] = ()  # Those along which the devices of a group differ
    shift: int | None = None  # Of a permutation along one axis: positions that each value moves on


@functools.lru_cache(512)
def groups_of(written: str, devices: int) -> Ints | None:
    """Returns replica groups, one a row; None for a form that is unknown.

    A group that is smaller than the largest repeats its first position.
    """
    written = written.strip()
    if written in ("", "{}"):
        return np.arange(devices)[None]
    if iota := _IOTA.match(written):
        to, of, order = (_numbers(part or "") for part in iota.groups())
        return _iota(of or to, order).reshape(-1, to[-1])
    if mesh := _MESH.match(written):
        return _mesh_groups(mesh[1], mesh[2] or "", mesh[3])
    rows = [_numbers(row) for row in _ROW.findall(written)]
    most = max(map(len, rows), default=0)
    return np.array([row + row[:1] * (most - len(row)) for row in rows]) if rows else None


def along_groups(groups: Ints, mesh: Axes) -> Along | None:
    """Returns the axes along which the positions of each group differ; None for another mesh."""
    sizes = tuple(mesh.values())
    if groups.max() >= math.prod(sizes):
        return None
    at = np.stack(np.unravel_index(groups, sizes), -1)  # (groups, members, axes)
    differ = (at != at[:, :1]).any((0, 1))
    return Along(tuple(name for name, one in zip(mesh, differ, strict=True) if one))


def along_pairs(pairs: Sequence[tuple[int, int]], mesh: Axes) -> Along | None:
    """Returns the axes along which a permutation sends, and how far if all go as far."""
    sizes = tuple(mesh.values())
    if max(map(max, pairs)) >= math.prod(sizes):
        return None
    source, target = (np.stack(np.unravel_index(ends, sizes), -1) for ends in np.array(pairs).T)
    by = (target - source) % np.array(sizes)
    axes = np.flatnonzero(by.any(0))
    shift = None
    if len(axes) == 1:
        size, (far, *others) = sizes[axes[0]], np.unique(by[:, axes[0]]).tolist()
        shift = None if others else far - size if far > size // 2 else far
    return Along(tuple(list(mesh)[axis] for axis in axes), shift)


def fills(along: Along, group: int, mesh: Axes) -> bool:
    """Returns whether groups of this size are whole axes, and not parts of them."""
    return math.prod(mesh[axis] for axis in along.axes) == group


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _iota(shape: Sequence[int], order: Sequence[int]) -> Ints:
    """Returns the positions of all devices, `shape` transposed to `order`, as one row."""
    positions = np.arange(math.prod(shape)).reshape(tuple(shape))
    return (positions.transpose(tuple(order)) if order else positions).reshape(-1)


def _mesh_groups(axes: str, ids: str, used: str) -> Ints:
    """Returns the groups along some axes of a mesh, of which `'a':(2)4` is a part.

    That part has 4 positions, and what comes before it in the axis has 2.
    """
    parts: dict[str, list[tuple[int, int]]] = {}
    for name, before, size in _PART.findall(used):
        parts.setdefault(name, []).append((int(before or 1), int(size or 0)))
    shape: list[int] = []
    inside: list[int] = []
    for name, written in _AXIS.findall(axes):
        size, done = int(written), 1
        for before, part in sorted(parts.get(name, [])):
            shape.append(before // done)
            inside.append(len(shape))
            shape.append(part or size)
            done = before * (part or size)
        shape.append(size // done)
    order = _IOTA.match(ids)
    if order:
        positions = _iota(_numbers(order[2] or order[1]), _numbers(order[3] or ""))
    else:
        positions = np.array(_numbers(ids) or range(math.prod(shape)))
    outside = [axis for axis in range(len(shape)) if axis not in inside]
    together = math.prod(shape[axis] for axis in inside)
    return positions.reshape(shape).transpose(outside + inside).reshape(-1, together)
