"""The meshes for which a program is counted, and the speeds of links, as the user writes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding

from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab.meshes.blocks import axes_text, cuts, full_spec
from distlab.text.shown import shown

Speed: TypeAlias = float | tuple[float, float]
"""Bytes per second of a link, alone or after its latency in seconds."""


class IndivisibleError(ValueError):
    """A mesh does not divide arrays: its text names them."""


def check_divided(arrays: Iterable[tuple[str, Sequence[int], NamedSharding]]) -> None:
    """Raises an error that names the arrays, such as `"x[100, 8]: 100 by data 64"`."""
    found = []
    for name, shape, sharding in arrays:
        axes = dict(sharding.mesh.shape)
        spec = full_spec(sharding.spec, len(shape))
        for size, cut, names in zip(shape, cuts(spec, axes), spec, strict=True):
            if size % cut:
                by = axes_text({name: axes[name] for name in names})
                found.append(f"{name}{list(shape)}: {size} by {by}")
    if found:
        raise IndivisibleError(", ".join(found))


class Asked(NamedTuple):
    """A mesh of simulated CPU devices, or of a TPU topology."""

    axes: dict[str, int]  # empty: those of a mesh of as many devices, or one axis "data"
    topology: str = ""
    types: tuple[AxisType, ...] | None = None  # of the axes; None for `Auto`
    small: bool = False  # to extrapolate from, of which an error is none of the program's

    @property
    def devices(self) -> int:
        """The number of devices; 1 for a topology alone, whose number its process knows."""
        return math.prod(self.axes.values())

    def __str__(self) -> str:
        """Returns the axes as text, and the topology."""
        return " ".join(part for part in (self.topology, axes_text(self.axes)) if part)


def asked(meshes: Sequence[Any]) -> list[Asked]:
    """Returns the meshes that a user named.

    Raises:
      ArgumentTypeError: It is one mesh, and no list.
      ArgumentValueError: One is no mesh.
    """
    if isinstance(meshes, str | Mapping):
        raise ArgumentTypeError(
            f"meshes must be a list, got {shown(meshes)}. Write [{{'data': 64}}, {{'data': 256}}]."
        )
    return [_asked(one) for one in meshes]


def _asked(one: Any) -> Asked:
    match one:
        case Mesh() | AbstractMesh():
            return Asked(dict(one.shape), types=one.axis_types)
        case str() if one:
            return Asked({}, one)
        case (str() as topology, axes) if topology and _are_axes(axes):
            return Asked(dict(axes), topology)
        case axes if _are_axes(axes):
            return Asked(dict(axes))
    raise ArgumentValueError(
        f"A mesh must be names of axes with sizes, or a TPU topology, got {shown(one)}. Write "
        "{'data': 64, 'model': 4}, 'v5e:16x16' or ('v5e:16x16', {'data': 256})."
    )


def _are_axes(one: Any) -> TypeGuard[Mapping[str, int]]:
    if not isinstance(one, Mapping) or not one:
        return False
    return all(isinstance(n, str) and type(size) is int and size > 0 for n, size in one.items())


def links(speeds: Mapping[str, Speed] | None) -> dict[str, tuple[float, float]]:
    """Returns the latency in seconds and the bytes per second of each axis."""
    given = (speeds or {}).items()
    pairs = {axis: speed if isinstance(speed, tuple) else (0.0, speed) for axis, speed in given}
    return {axis: (float(latency), float(rate)) for axis, (latency, rate) in pairs.items()}
