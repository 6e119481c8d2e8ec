"""The meshes for which a program is counted, and the speeds of links, as the user writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

from jax.sharding import AbstractMesh, AxisType, Mesh

from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab.meshes.blocks import axes_text
from distlab.text.shown import shown

Speed: TypeAlias = float | tuple[float, float]
"""Bytes per second of a link, alone or after its latency in seconds."""

NOT_DIVISIBLE: Final = "not divisible: "
"""Begins errors of arrays that a mesh does not divide."""


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
      ArgumentTypeError: It is no list.
      ArgumentValueError: It is empty, or one is no mesh.
    """
    if isinstance(meshes, str | Mapping) or not isinstance(meshes, Sequence):
        raise ArgumentTypeError(
            f"meshes must be a list, got {shown(meshes)}. Write [{{'data': 64}}, {{'data': 256}}]."
        )
    if not meshes:
        raise ArgumentValueError("meshes must name a mesh, got an empty list. Add {'data': 64}.")
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


def checked_speeds(speeds: Mapping[str, Speed] | None) -> dict[str, tuple[float, float]]:
    """Returns the latency in seconds and the bytes per second of each axis.

    Raises:
      ArgumentValueError: A speed is not a positive number, alone or after a latency.
    """
    found = {}
    for axis, speed in (speeds or {}).items():
        match speed if isinstance(speed, tuple) else (0, speed):
            case (float() | int() as latency, float() | int() as rate) if latency >= 0 < rate:
                found[axis] = (float(latency), float(rate))
            case _:
                raise ArgumentValueError(
                    f"A link's speed must be bytes per second, alone or after a latency in seconds,"
                    f" got {shown(speed)} for {axis}. Write 45e9 or (1e-6, 45e9)."
                )
    return found
