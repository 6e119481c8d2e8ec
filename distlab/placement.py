"""Arrays of a pytree and their blocks on devices, as text and as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, final

import jax
from jax.sharding import AxisType, NamedSharding

from distlab.devices import selection
from distlab.errors import ArgumentValueError
from distlab.meshes import blocks
from distlab.meshes.blocks import Spec
from distlab.meshes.grids import grid_of
from distlab.meshes.pictures import Picture, picture_of_blocks, pictures_html
from distlab.text.bytes import bytes_text
from distlab.text.html import card
from distlab.text.shown import shown
from distlab.text.units import aligned, counted

_MOST_PICTURES: Final = 6
_MOST_TEXT_CELLS: Final = 8
_MOST_TEXT_PANELS: Final = 2
"""Cells and panels of text; a notebook's picture has all of them."""
_MOST_ROWS: Final = 16
_MOST_NAME: Final = 44
_LEGEND: Final = "A cell is a device. Equal colours hold the same block."


@final
@dataclass(frozen=True)
class PlacedArray:
    """One array of a pytree, and its blocks on the devices.

    Attributes:
      name: Path in the tree, such as `"params/w1"`.
      shape: Shape of the whole array.
      dtype: Element type.
      axes: Names and sizes of the mesh's axes, in its order; empty for an array without a mesh.
      spec: The mesh axes that divide each dimension, one tuple a dimension.
      where: The spec as JAX writes it; without a mesh the device, `"host"` or `"traced"`.
      nbytes: Bytes of the whole array.
      bytes_per_device: Bytes of one block; 0 where no device holds one.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    axes: dict[str, int]
    spec: Spec
    where: str
    nbytes: int
    bytes_per_device: int

    @property
    def block(self) -> tuple[int, ...]:
        """Shape of the block on one device."""
        return blocks.block_shape(self.shape, self.spec, self.axes)

    @property
    def copied_along(self) -> tuple[str, ...]:
        """The mesh axes along which devices hold copies of one block."""
        return blocks.copied_along(self.spec, self.axes)

    @property
    def copies(self) -> int:
        """Number of devices that hold each block."""
        return blocks.copies(self.spec, self.axes)

    def slices(self, **position: int) -> tuple[slice, ...]:
        """Returns the part of the array on the device at a position of the mesh.

        Args:
          **position: The index along each axis; axes left out are at 0.

        Raises:
          ArgumentValueError: The mesh has no such axis or position.

        Example:
          >>> import jax, distlab as dl
          >>> from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
          >>> sharding = NamedSharding(AbstractMesh((4, 2), ("data", "model")), P("model"))
          >>> w = jax.ShapeDtypeStruct((64, 16), "float32", sharding=sharding)
          >>> dl.placed(w)["array"].slices(data=3, model=1)
          (slice(32, 64, None), slice(0, 16, None))
        """
        at = dict.fromkeys(self.axes, 0) | position
        if at.keys() != self.axes.keys() or not all(0 <= at[n] < self.axes[n] for n in at):
            raise ArgumentValueError(
                f"slices() needs a position in a mesh of {blocks.axes_text(self.axes)}, got "
                f"{shown(position)}. Give each axis a number from 0 to its size less one."
            )
        number = 0
        for name, size in self.axes.items():
            number = number * size + at[name]
        firsts = blocks.blocks(self.spec, self.axes)[number] * self.block
        return tuple(
            slice(int(first), min(int(first) + wide, size))
            for first, wide, size in zip(firsts, self.block, self.shape, strict=True)
        )


@final
class Placed:
    """The arrays of a pytree with their blocks, as `placed` returns them.

    In a notebook it is a picture of the mesh for each way in which arrays are divided, and a table
    of the arrays; elsewhere the same as text. Equal colours and numbers are copies of one block.

    Attributes:
      name: The title.
      arrays: All arrays, in the tree's order.
    """

    def __init__(self, name: str, arrays: list[PlacedArray]) -> None:
        self.name = name
        self.arrays = arrays

    def __getitem__(self, name: str) -> PlacedArray:
        """Returns the array of a path, such as `"params/w1"`."""
        return {array.name: array for array in self.arrays}[name]

    def __len__(self) -> int:
        """Returns the number of arrays."""
        return len(self.arrays)

    def __iter__(self) -> Iterator[PlacedArray]:
        """Iterates over the arrays."""
        return iter(self.arrays)

    @property
    def bytes_per_device(self) -> int:
        """Bytes of all blocks on one device of the mesh: all its devices hold as many."""
        return sum(array.bytes_per_device for array in self.arrays)

    def __repr__(self) -> str:
        """Returns the grids and the table as text."""
        lines = [f"{self.name}: {self._facts()}"]
        pictures = self._pictures()
        for alike in pictures[:_MOST_PICTURES]:
            picture = _picture(alike)
            lines += ["", f"{picture.title}: {picture.facts}", *_grid_lines(alike[0])]
        lines += _more(len(pictures) - _MOST_PICTURES, "other division")
        headings, rows = self._table()
        if rows:
            lines += ["", *aligned([headings, *rows[:_MOST_ROWS]])]
        return "\n".join(lines + _more(len(rows) - _MOST_ROWS, "smaller array"))

    def _repr_html_(self) -> str:
        """Returns the grids and the table as HTML without scripts."""
        alike = self._pictures()
        picture = pictures_html([_picture(one) for one in alike[:_MOST_PICTURES]])
        picture += "".join(_more(len(alike) - _MOST_PICTURES, "other division"))
        if alike:
            picture += f'<div style="opacity:.75;margin:6px 0 0">{_LEGEND}</div>'
        return card(self.name, self._facts(), *self._table(), picture=picture)

    def _pictures(self) -> list[list[PlacedArray]]:
        """Returns the arrays of each way to be divided over a mesh, most bytes first."""
        found: dict[object, list[PlacedArray]] = {}
        for array in self.arrays:
            if array.axes:
                divided = tuple(names for names in array.spec if names)
                found.setdefault((*array.axes.items(), divided), []).append(array)
        return sorted(found.values(), key=lambda alike: -_bytes(alike))

    def _facts(self) -> str:
        meshes = list(dict.fromkeys(tuple(array.axes.items()) for array in self if array.axes))
        on = " and ".join(blocks.axes_text(dict(mesh)) for mesh in meshes[:3])
        count = counted(len(self), "array")
        size = bytes_text(sum(array.nbytes for array in self))
        if not meshes:
            return f"{count}, {size}"
        each = f", {bytes_text(self.bytes_per_device)} a device" if len(meshes) == 1 else ""
        return f"{count} of {size} on a mesh of {on}{each}"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        headings = ["array", "type", "divided", "one block", "bytes a device", "copies"]
        rows = [
            [
                _shortened(array.name),
                f"{array.dtype}{list(array.shape)}",
                array.where,
                str(list(array.block)) if array.axes else "",
                bytes_text(array.bytes_per_device) if array.bytes_per_device else "",
                _copies_text(array),
            ]
            for array in sorted(self.arrays, key=lambda one: -one.bytes_per_device)
        ]
        return headings, rows


def placed(tree: Any, name: str = "arrays") -> Placed:
    """Returns which device holds which block of each array of a pytree.

    Nothing is read from a device, so donated arrays and a `jax.ShapeDtypeStruct` with a sharding
    will do, and a mesh may be an `AbstractMesh` of devices that are elsewhere. Variables of a
    strategy are shown by their arrays. Within a function that JAX traces, arrays on explicit mesh
    axes are shown; of others XLA decides later.

    Args:
      tree: Arrays, `jax.ShapeDtypeStruct`s or a pytree of them; other leaves are left out.
      name: The title.

    Returns:
      The arrays: printed or displayed, a picture of the mesh and a table.

    Example:
      >>> import jax, distlab as dl
      >>> from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
      >>> mesh = AbstractMesh((4, 2), ("data", "model"))
      >>> sharding = NamedSharding(mesh, P(None, "model"))
      >>> state = {"w": jax.ShapeDtypeStruct((64, 16), "float32", sharding=sharding)}
      >>> print(dl.placed(state, name="state"))
      state: 1 array of 4.10 kB on a mesh of data 4 × model 2, 2.05 kB a device
      <BLANKLINE>
      P(None, 'model'): 1 array, 2.05 kB a device; 2 blocks, 4 copies of each along data
             model
             0 1
      data 0 0 1
           1 0 1
           2 0 1
           3 0 1
      <BLANKLINE>
      array  type              divided           one block  bytes a device  copies
      w      float32[64, 16]   P(None, 'model')  [64, 8]    2.05 kB         4 along data
    """
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    found = (_placed(jax.tree_util.keystr(p, simple=True, separator="/"), x) for p, x in leaves)
    return Placed(name, [array for array in found if array is not None])


def _placed(name: str, leaf: Any) -> PlacedArray | None:
    array = getattr(getattr(leaf, "storage", None), "array", leaf)  # that of a variable
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        return None
    shape, sharding = tuple(array.shape), getattr(array, "sharding", None)
    if sharding is None and isinstance(array, jax.core.Tracer):
        sharding = jax.typeof(array).sharding
        if AxisType.Auto in sharding.mesh.axis_types:
            sharding = None
    axes: dict[str, int] = {}
    spec: Spec = ((),) * len(shape)
    if isinstance(sharding, NamedSharding):
        axes, spec = dict(sharding.mesh.shape), blocks.full_spec(sharding.spec, len(shape))
        where, block = blocks.spec_text(spec), blocks.block_shape(shape, spec, axes)
    elif isinstance(sharding, jax.sharding.Sharding):
        where, block = _other_text(sharding), sharding.shard_shape(shape)
    else:
        where, block = "traced" if isinstance(array, jax.core.Tracer) else "host", (0,)
    whole, size = (math.prod(one) * array.dtype.itemsize for one in (shape, block))
    memory = getattr(sharding, "memory_kind", None) or ""
    if "host" in memory:
        where, size = f"{where}, {memory}", 0
    kind = str(array.dtype)
    return PlacedArray(name or "array", shape, kind, axes, spec, where, whole, size)


def _other_text(sharding: Any) -> str:
    devices = sorted(sharding.device_set, key=lambda device: device.id)
    if len(devices) == 1:
        return selection.name(devices[0])
    return f"{type(sharding).__name__} on {len(devices)} devices"


def _picture(alike: list[PlacedArray]) -> Picture:
    """Returns the drawing of arrays that are divided alike."""
    first = alike[0]
    wheres = list(dict.fromkeys(array.where for array in alike))
    others = f" and {len(wheres) - 1} alike" if len(wheres) > 1 else ""
    facts = f"{counted(len(alike), 'array')}, {bytes_text(_bytes(alike))} a device"
    return picture_of_blocks(
        f"{wheres[0]}{others}", facts, first.axes, first.spec, name=first.name, shape=first.shape
    )


def _copies_text(array: PlacedArray) -> str:
    if not array.copied_along:
        return "one" if array.axes else ""
    whole = "whole, " if array.block == array.shape else ""
    return f"{whole}{array.copies} along {', '.join(array.copied_along)}"


def _grid_lines(array: PlacedArray) -> list[str]:
    """Returns the number of each device's block in rows and columns; nothing for whole copies."""
    grid, numbers = grid_of(array.axes), blocks.block_numbers(array.spec, array.axes)
    if not numbers.any():
        return []
    rows, columns = (min(size, _MOST_TEXT_CELLS) for size in grid.shape)
    wide = max(len(str(numbers.max())), *map(len, grid.column_labels[:columns]))
    left = max(map(len, grid.row_labels))
    down = len(grid.row_axis) + 1 if grid.row_axis else 0
    indent = " " * (down + left + (1 if left else 0))
    more = " \u2026" if columns < grid.shape[1] else ""
    lines = []
    for panel, title in enumerate(grid.titles[:_MOST_TEXT_PANELS]):
        lines += [title] if title else []
        lines.append(f"{indent}{grid.column_axis}")
        heads = (f"{label:>{wide}}" for label in grid.column_labels[:columns])
        lines.append(f"{indent}{' '.join(heads)}{more}")
        table = grid.table(numbers, panel)
        for row in range(rows):
            axis = f"{grid.row_axis if row == 0 else '':<{down}}"
            cells = (f"{n:>{wide}}" if n >= 0 else " " * wide for n in table[row, :columns])
            label = f"{grid.row_labels[row]:>{left}} " if left else ""
            lines.append(f"{axis}{label}{' '.join(cells)}{more}".rstrip())
        if rows < grid.shape[0]:
            lines.append(f"{indent}\u2026")
    return lines + _more(len(grid.titles) - _MOST_TEXT_PANELS, "other panel")


def _bytes(arrays: list[PlacedArray]) -> int:
    return sum(array.bytes_per_device for array in arrays)


def _shortened(name: str) -> str:
    return name if len(name) <= _MOST_NAME else f"\u2026{name[1 - _MOST_NAME :]}"


def _more(count: int, what: str) -> list[str]:
    return [f"and {counted(count, what)}"] if count > 0 else []
