"""The meshes for which a program is counted, and the speeds of links, as the user writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

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
        case (str(topology), Mapping() as axes) if topology:
            return Asked(_axes(axes), topology)
        case Mapping():
            return Asked(_axes(one))
    raise ArgumentValueError(
        f"A mesh must be axes and sizes, or a TPU topology, got {shown(one)}. Write "
        "{'data': 64, 'model': 4}, 'v5e:16x16' or ('v5e:16x16', {'data': 256})."
    )


def _axes(axes: Mapping[Any, Any]) -> dict[str, int]:
    for name, size in axes.items():
        if not isinstance(name, str) or type(size) is not int or size < 1:
            raise ArgumentValueError(
                f"A mesh's axis must be a name with a size of at least 1, got {shown(name)}: "
                f"{shown(size)}. Write {{'data': 64}}."
            )
    if not axes:
        raise ArgumentValueError("A mesh must have an axis, got {}. Write {'data': 64}.")
    return dict(axes)


def checked_speeds(speeds: Mapping[str, Speed] | None) -> dict[str, tuple[float, float]]:
    """Returns the latency in seconds and the bytes per second of each axis.

    Raises:
      ArgumentValueError: A speed is not a positive number, alone or after a latency.
    """
    found = {}
    for axis, speed in (speeds or {}).items():
        match speed:
            case (float() | int() as alpha, float() | int() as rate) if alpha >= 0 and rate > 0:
                found[axis] = (float(alpha), float(rate))
            case float() | int() if speed > 0:
                found[axis] = (0.0, float(speed))
            case _:
                raise ArgumentValueError(
                    f"A link's speed must be bytes per second, or (seconds, bytes per second), got "
                    f"{shown(speed)} for {axis}. Write {{'data': 45e9}} or {{'data': (1e-6, 45e9)}}"
                    "."
                )
    return found
