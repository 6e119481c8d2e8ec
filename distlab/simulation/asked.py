"""The meshes for which a program is counted, as the user writes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding

from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab.meshes.blocks import axes_text, cuts, full_spec
from distlab.text.counts import is_positive_count
from distlab.text.shown import shown


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
    topology, axes, types = "", one, None
    match one:
        case Mesh() | AbstractMesh():
            axes, types = one.shape, one.axis_types
        case str():
            topology, axes = one, {}
        case (str(), _):
            topology, axes = one
    are_axes = isinstance(axes, Mapping) and all(map(is_positive_count, axes.values()))
    if not are_axes or not (axes or topology):
        raise ArgumentValueError(
            f"A mesh must be names of axes with sizes, or a TPU topology, got {shown(one)}. Write "
            "{'data': 64, 'model': 4}, 'v5e:16x16' or ('v5e:16x16', {'data': 256})."
        )
    return Asked(dict(axes), topology, types)
