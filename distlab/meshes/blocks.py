"""Blocks of arrays on a mesh, computed from shapes and partition specs alone.

A *position* is a device's place in the mesh, counted in C order. `NamedSharding` knows its index
map for devices only; these few operations of NumPy serve abstract meshes and events of runs, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Spec: TypeAlias = tuple[tuple[str, ...], ...]
"""The mesh axes that divide each dimension of an array, one tuple a dimension."""

Axes: TypeAlias = Mapping[str, int]
"""Names and sizes of a mesh's axes, in its order."""

_MOST_POSITIONS: Final = 1 << 16

Ints: TypeAlias = npt.NDArray[np.int64]


def full_spec(spec: Iterable[Any], rank: int) -> Spec:
    """Returns a `PartitionSpec`, or a list of lists of an event, with a tuple a dimension."""
    found = [
        (entry,) if isinstance(entry, str) else (*entry,) if isinstance(entry, tuple | list) else ()
        for entry in spec
    ]
    return tuple((found + [()] * rank)[:rank])


def is_sound(spec: Spec, axes: Axes) -> bool:
    """Returns whether a mesh and a spec can be drawn: a damaged run may state any."""
    known = {name for names in spec for name in names} <= axes.keys()
    sizes = axes.values()
    return known and min(sizes, default=0) > 0 and math.prod(sizes) <= _MOST_POSITIONS


def cuts(spec: Spec, axes: Axes) -> tuple[int, ...]:
    """Returns the number of blocks along each dimension."""
    return tuple(math.prod(axes[name] for name in names) for names in spec)


def block_shape(shape: Sequence[int], spec: Spec, axes: Axes) -> tuple[int, ...]:
    """Returns the shape of one block: the largest, where a dimension can't be divided evenly."""
    return tuple(-(-size // cut) for size, cut in zip(shape, cuts(spec, axes), strict=True))


def copied_along(spec: Spec, axes: Axes) -> tuple[str, ...]:
    """Returns the axes along which devices hold copies of one block."""
    used = {name for names in spec for name in names}
    return tuple(name for name, size in axes.items() if size > 1 and name not in used)


def copies(spec: Spec, axes: Axes) -> int:
    """Returns the number of devices that hold each block."""
    return math.prod(axes[name] for name in copied_along(spec, axes))


def divisible_along(shape: Sequence[int], spec: Iterable[Any], axes: Axes) -> tuple[str, ...]:
    """Returns the axes along which blocks are copies, and could be divided evenly."""
    spec = full_spec(spec, len(shape))
    if not is_sound(spec, axes):
        return ()
    block = block_shape(shape, spec, axes)
    return tuple(
        name
        for name in copied_along(spec, axes)
        if any(size and size % axes[name] == 0 for size in block)
    )


def blocks(spec: Spec, axes: Axes) -> Ints:
    """Returns the block of each position along each dimension, `(positions, dimensions)`."""
    sizes = tuple(axes.values())
    places = np.indices(sizes).reshape(len(sizes), math.prod(sizes))
    at = dict(zip(axes, places, strict=True))
    found = np.zeros((math.prod(sizes), len(spec)), np.int64)
    for dimension, names in enumerate(spec):
        for name in names:
            found[:, dimension] = found[:, dimension] * axes[name] + at[name]
    return found


def block_numbers(spec: Spec, axes: Axes) -> Ints:
    """Returns the number of each position's block, in C order: equal numbers are copies."""
    numbers = np.zeros(math.prod(axes.values()), np.int64)
    for cut, along in zip(cuts(spec, axes), blocks(spec, axes).T, strict=True):
        numbers = numbers * cut + along
    return numbers


def part_texts(shape: Sequence[int], spec: Spec, axes: Axes) -> list[str]:
    """Returns the part of an array at each position, such as `"[0:64, 0:10]"`."""
    block = block_shape(shape, spec, axes)
    return [
        ", ".join(
            f"{first}:{min(first + wide, size)}"
            for first, wide, size in zip(at, block, shape, strict=True)
        ).join("[]")
        for at in (blocks(spec, axes) * block).tolist()
    ]


def spec_text(spec: Spec) -> str:
    """Returns a spec as JAX writes it, such as `"P('data', None, ('model', 'seq'))"`."""
    entries = [repr(n[0]) if len(n) == 1 else repr(n) if n else "None" for n in spec]
    while entries and entries[-1] == "None":
        entries.pop()
    return f"P({', '.join(entries)})"


def axes_text(axes: Axes) -> str:
    """Returns a mesh's axes as text, such as `"data 4 × model 2"`."""
    return " \u00d7 ".join(f"{name} {size}" for name, size in axes.items())
