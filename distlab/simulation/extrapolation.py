"""Counts for a large mesh from those for small ones.

A number is `fixed + divided / n` along each axis, or `fixed + more * n`. Both hold from two
devices on: along an axis of one, nothing is sent. A third mesh is predicted and compared before
the large one is: where the program changes with its size, there is no extrapolation.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from operator import mul
from typing import Any, Final, NamedTuple

import jax
import msgspec

from distlab.events import ArrayPlace
from distlab.programs.collectives import wire_bytes
from distlab.programs.contents import ProgramContents
from distlab.simulation.counts import Count

_TIMES_APART = 0.02
"""The most by which predicted and counted repeated work may differ: XLA rounds FLOPs."""

_FALLING: Final = functools.partial(Fraction, 1)
_GROWING: Final = Fraction
_COUNTED: Final = (
    *("kind", "axes", "asked", "dtype", "operands", "times_per_step", "shift"),
    *("operand_bytes", "then_sliced", "group", "participants"),
)


class Basis(NamedTuple):
    """The small meshes from which a large one is extrapolated."""

    target: dict[str, int]
    shrunk: dict[str, tuple[int, int, int]]  # sizes of an axis: two to begin with, one to check

    @property
    def meshes(self) -> list[dict[str, int]]:
        """The meshes to begin with, then the one to check."""
        corners = itertools.product(*(sizes[:2] for sizes in self.shrunk.values()))
        check = tuple(sizes[2] for sizes in self.shrunk.values())
        return [self.target | dict(zip(self.shrunk, one, strict=True)) for one in (*corners, check)]


def basis(axes: dict[str, int], most_devices: int) -> Basis | None:
    """Returns the small meshes for a large one; None where it is small, or can't be shrunk."""
    found = Basis(axes, {})
    for axis in sorted(axes, key=lambda axis: -axes[axis]):
        if math.prod(found.meshes[-1].values()) <= most_devices:
            break
        divisors = [n for n in range(2, axes[axis]) if axes[axis] % n == 0]
        if len(divisors) > 2:
            found.shrunk[axis] = (divisors[0], divisors[1], divisors[2])
    fits = math.prod(found.meshes[-1].values()) <= most_devices
    return found if found.shrunk and fits else None


def extrapolated(basis: Basis, counts: Sequence[Count]) -> Count | None:
    """Returns the count for the large mesh; None where the program changes with its size.

    Args:
      basis: The small meshes.
      counts: What was counted for each of them.
    """
    known = [one.contents for one in counts if one.contents is not None]
    if len(known) < len(counts):
        return None
    leaves, (form, *forms) = zip(*(jax.tree.flatten(_facts(one)) for one in known), strict=True)
    if any(one != form for one in forms):
        return None
    found = [_fact(basis, values) for values in zip(*leaves, strict=True)]
    if None in found:
        return None
    flops = [one.flops or 0.0 for one in known]
    whole = [
        n * one.devices / (one.computed_times or math.inf)
        for n, one in zip(flops, known, strict=True)
    ]
    times = None
    if all(whole):
        predicted, times = (
            math.prod(axes.values())
            * _combined(basis, axes, flops, _FALLING)
            / _combined(basis, axes, whole, _GROWING)
            for axes in (basis.meshes[-1], basis.target)
        )
        if abs(predicted / known[-1].computed_times - 1) >= _TIMES_APART:
            return None
    collectives, inputs, outputs = jax.tree.unflatten(form, found)
    return counts[-1]._replace(
        axes=basis.target,
        contents=known[-1]._replace(
            mesh=basis.target,
            devices=math.prod(basis.target.values()),
            collectives=[
                msgspec.structs.replace(
                    one,
                    **facts,
                    wire_bytes=wire_bytes(one.kind, facts["operand_bytes"], facts["group"]),
                    values=[],
                )
                for one, facts in zip(known[-1].collectives, collectives, strict=True)
            ],
            inputs=[ArrayPlace(**facts) for facts in inputs],
            outputs=[ArrayPlace(**facts) for facts in outputs],
            flops=_combined(basis, basis.target, flops, _FALLING) if any(flops) else None,
            bytes_accessed=None,
            computed_times=times,
        ),
        extrapolated_from=tuple(basis.meshes),
    )


def _facts(of: ProgramContents) -> Any:
    """Returns what follows from a mesh, or is the same on all."""
    return (
        [{name: getattr(one, name) for name in _COUNTED} for one in of.collectives],
        [msgspec.structs.asdict(one) for one in of.inputs],
        [msgspec.structs.asdict(one) for one in of.outputs],
    )


def _fact(basis: Basis, values: Sequence[Any]) -> Any:
    """Returns a fact of the large mesh from those of the small ones; None if no way leads to it."""
    if all(one == values[-1] for one in values):
        return values[-1]
    for way in (_FALLING, _GROWING) if isinstance(values[-1], int) else ():
        found = _combined(basis, basis.target, values, way)
        exact = _combined(basis, basis.meshes[-1], values, way) == values[-1]
        if exact and found >= 0 and found % 1 == 0:
            return int(found)
    return None


def _combined(
    basis: Basis, axes: dict[str, int], values: Sequence[Any], way: Callable[[int], Fraction]
) -> Any:
    """Returns what the numbers of the meshes to begin with say of another mesh."""
    along = []
    for axis, (low, high, _) in basis.shrunk.items():
        second = (way(axes[axis]) - way(low)) / (way(high) - way(low))
        along.append((1 - second, second))
    weights = map(math.prod, itertools.product(*along))
    return sum(map(mul, weights, values))  # not the last, the one to check
