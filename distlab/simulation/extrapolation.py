"""Counts for a large mesh from those for small ones.

Bytes are `fixed + divided / n` along each axis, and sizes `fixed + more * n`. Both hold from two
devices on: along an axis of one, nothing is sent. A third mesh is predicted and compared before
the large one is: where the program changes with its size, there is no extrapolation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from operator import mul
from typing import Any, NamedTuple

import msgspec

from distlab.events import Collective
from distlab.programs.collectives import wire_bytes
from distlab.programs.contents import ProgramContents
from distlab.simulation.counts import Count

_TIMES_APART = 0.02
"""The most by which predicted and counted repeated work may differ: XLA rounds FLOPs."""


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


class _Facts(NamedTuple):
    """The facts of a program by their way of changing with the sizes of axes."""

    fixed: Any
    falling: list[Any]  # `fixed + divided / n`, the last a device's FLOPs
    growing: list[Any]  # `fixed + more * n`, the last the whole program's FLOPs

    @property
    def sizes(self) -> tuple[list[Any], list[Any]]:
        """The facts that are exact."""
        return self.falling[:-1], self.growing[:-1]


def extrapolated(basis: Basis, counts: Sequence[Count]) -> Count | None:
    """Returns the count for the large mesh; None where the program changes with its size.

    Args:
      basis: The small meshes.
      counts: What was counted for each of them.
    """
    contents = [one.contents for one in counts if one.contents is not None]
    if len(contents) < len(counts):
        return None
    *corners, check = map(_facts, contents)
    if any(one.fixed != check.fixed for one in corners):
        return None
    predicted, found = (_at(basis, axes, corners) for axes in (counts[-1].axes, basis.target))
    whole = all(size >= 0 and size % 1 == 0 for sizes in found.sizes for size in sizes)
    if predicted.sizes != check.sizes or not whole:
        return None
    times = None
    if all(one.growing[-1] for one in (*corners, check)):
        share, counted = (one.falling[-1] / one.growing[-1] for one in (predicted, check))
        if abs(share / counted - 1) >= _TIMES_APART:
            return None
        times = math.prod(basis.target.values()) * found.falling[-1] / found.growing[-1]
    return counts[-1]._replace(
        axes=basis.target,
        contents=_contents(contents[-1], basis.target, found)._replace(computed_times=times),
        extrapolated_from=tuple(basis.meshes),
    )


def _facts(of: ProgramContents) -> _Facts:
    arrays = [*of.inputs, *of.outputs]
    flops, times = of.flops or 0.0, of.computed_times
    return _Facts(
        (
            len(of.inputs),
            [_fixed(one, of.mesh) for one in of.collectives],
            [(one.name, one.dtype, one.spec, len(one.shape)) for one in arrays],
        ),
        [
            *(size for one in of.collectives for size in (one.operand_bytes, one.then_sliced)),
            *(one.bytes_per_device for one in arrays),
            flops,
        ],
        [
            *(size for one in arrays for size in one.shape),
            flops * of.devices / times if times else 0.0,
        ],
    )


def _fixed(one: Collective, axes: dict[str, int]) -> Any:
    if not one.axes or one.wire_bytes != wire_bytes(one.kind, one.operand_bytes, _group(one, axes)):
        return object()  # equal to no other: what it sends does not follow from its axes
    return one.kind, one.axes, one.asked, one.operands, one.times_per_step, one.dtype


def _group(one: Collective, axes: dict[str, int]) -> int:
    return math.prod(axes[axis] for axis in one.axes)


def _at(basis: Basis, axes: dict[str, int], corners: Sequence[_Facts]) -> _Facts:
    """Returns what the facts at the corners say of another mesh."""
    falling = _weights(basis, axes, lambda n: Fraction(1, n))
    growing = _weights(basis, axes, Fraction)
    return _Facts(
        corners[0].fixed,
        [sum(map(mul, falling, row)) for row in zip(*(c.falling for c in corners), strict=True)],
        [sum(map(mul, growing, row)) for row in zip(*(c.growing for c in corners), strict=True)],
    )


def _weights(basis: Basis, axes: dict[str, int], of: Callable[[int], Fraction]) -> list[Fraction]:
    """Returns the weight of each corner: the product of those along the axes."""
    along = []
    for axis, (low, high, _) in basis.shrunk.items():
        second = (of(axes[axis]) - of(low)) / (of(high) - of(low))
        along.append((1 - second, second))
    return [math.prod(corner, start=Fraction(1)) for corner in itertools.product(*along)]


def _contents(like: ProgramContents, axes: dict[str, int], facts: _Facts) -> ProgramContents:
    """Returns a program with other facts."""
    falling, growing = map(int, facts.falling), map(int, facts.growing)
    collectives = []
    for one in like.collectives:
        operand, sliced, group = next(falling), next(falling), _group(one, axes)
        collectives.append(
            msgspec.structs.replace(
                one,
                operand_bytes=operand,
                wire_bytes=wire_bytes(one.kind, operand, group),
                then_sliced=sliced,
                group=group,
                participants=math.prod(axes.values()),
                values=[],
            )
        )
    arrays = [
        msgspec.structs.replace(
            one, shape=[next(growing) for _ in one.shape], bytes_per_device=next(falling)
        )
        for one in (*like.inputs, *like.outputs)
    ]
    return like._replace(
        mesh=axes,
        devices=math.prod(axes.values()),
        collectives=collectives,
        inputs=arrays[: len(like.inputs)],
        outputs=arrays[len(like.inputs) :],
        flops=None if like.flops is None else float(facts.falling[-1]),
        bytes_accessed=None,
    )
