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
from typing import Any, NamedTuple

import msgspec

from distlab.events import ArrayPlace, Collective
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
        sizes = [self.shrunk[axis][:2] for axis in self.shrunk]
        corners = [
            self.target | dict(zip(self.shrunk, corner, strict=True))
            for corner in itertools.product(*sizes)
        ]
        return [*corners, self.target | {axis: size[2] for axis, size in self.shrunk.items()}]


def basis(axes: dict[str, int], most_devices: int) -> Basis | None:
    """Returns the small meshes for a large one; None where it is small, or can't be shrunk."""
    shrunk: dict[str, tuple[int, int, int]] = {}
    for axis in sorted(axes, key=lambda axis: -axes[axis]):
        if math.prod((axes | {name: sizes[2] for name, sizes in shrunk.items()}).values()) <= (
            most_devices
        ):
            break
        divisors = [n for n in range(2, axes[axis]) if axes[axis] % n == 0]
        if len(divisors) > 2:
            shrunk[axis] = (divisors[0], divisors[1], divisors[2])
    found = Basis(axes, shrunk)
    fits = math.prod(found.meshes[-1].values()) <= most_devices
    return found if shrunk and fits else None


def extrapolated(basis: Basis, counts: Sequence[Count]) -> Count | None:
    """Returns the count for the large mesh; None where the program changes with its size.

    Args:
      basis: The small meshes.
      counts: What was counted for each of them.
    """
    *corners, check = counts
    if any(one.contents is None for one in counts):
        return None
    predicted = _at(basis, check.axes, corners, check)
    if predicted is None or not _equal(predicted, check.contents):
        return None
    found = _at(basis, basis.target, corners, check)
    return None if found is None else check._replace(axes=basis.target, contents=found)


class _Changed(Exception):  # noqa: N818 - not an error
    """The program is another one on another mesh."""


def _at(
    basis: Basis, axes: dict[str, int], corners: Sequence[Count], like: Count
) -> ProgramContents | None:
    """Returns what the counts at the corners say of a mesh whose program is `like` another's."""
    contents: list[Any] = [one.contents for one in corners]
    try:
        return _contents(axes, contents, like.contents, _Weights(basis, axes))
    except _Changed:
        return None


class _Weights:
    """The weights of the corners in what is extrapolated to one mesh."""

    def __init__(self, basis: Basis, axes: dict[str, int]) -> None:
        self._inverse = _products(basis, axes, lambda n: Fraction(1, n))
        self._linear = _products(basis, axes, Fraction)

    def bytes(self, values: Sequence[int]) -> int:
        """Returns a number that is fixed, or falls with the sizes of the axes."""
        return _whole(self._inverse, values)

    def size(self, values: Sequence[int]) -> int:
        """Returns a number that is fixed, or grows with the sizes of the axes."""
        return _whole(self._linear, values)

    def work(self, each: Sequence[float], whole: Sequence[float], devices: int) -> float:
        """Returns how often work is repeated: that of each device, and the program's."""
        own = sum(float(w) * v for w, v in zip(self._inverse, each, strict=True))
        all_of_it = sum(float(w) * v for w, v in zip(self._linear, whole, strict=True))
        return own * devices / all_of_it


def _products(basis: Basis, axes: dict[str, int], of: Callable[[int], Fraction]) -> list[Fraction]:
    """Returns the weight of each corner: the product of those along the axes."""
    along = []
    for axis, (low, high, _) in basis.shrunk.items():
        second = (of(axes[axis]) - of(low)) / (of(high) - of(low))
        along.append((1 - second, second))
    return [math.prod(corner, start=Fraction(1)) for corner in itertools.product(*along)]


def _whole(weights: Sequence[Fraction], values: Sequence[int]) -> int:
    found = sum(w * v for w, v in zip(weights, values, strict=True))
    if found.denominator > 1 or found < 0:
        raise _Changed
    return int(found)


def _contents(
    axes: dict[str, int], corners: list[ProgramContents], like: Any, weights: _Weights
) -> ProgramContents:
    devices = math.prod(axes.values())
    rows = [one.collectives for one in [*corners, like]]
    places = [[one.inputs for one in corners], [one.outputs for one in corners]]
    if len(set(map(len, rows))) > 1 or any(
        len(set(map(len, [*kind, given]))) > 1
        for kind, given in zip(places, (like.inputs, like.outputs), strict=True)
    ):
        raise _Changed
    times = None
    known = [(one.flops, one.computed_times, one.devices) for one in corners]
    if all(flops and repeated for flops, repeated, _ in known):
        each = [float(flops or 0) for flops, _, _ in known]
        whole = [float(flops or 0) * n / float(repeated or 1) for flops, repeated, n in known]
        times = weights.work(each, whole, devices)
    found: ProgramContents = like._replace(
        mesh=axes,
        devices=devices,
        collectives=[_collective(axes, row, weights) for row in zip(*rows, strict=True)],
        inputs=[_place(one, weights) for one in zip(*places[0], like.inputs, strict=True)],
        outputs=[_place(one, weights) for one in zip(*places[1], like.outputs, strict=True)],
        computed_times=times,
    )
    return found


def _collective(axes: dict[str, int], row: Sequence[Collective], weights: _Weights) -> Collective:
    *corners, like = row
    if len({(x.kind, *x.axes, x.asked, x.operands, x.times_per_step, x.dtype) for x in row}) > 1:
        raise _Changed
    if not like.axes:
        raise _Changed
    operand = weights.bytes([one.operand_bytes for one in corners])
    group = math.prod(axes[axis] for axis in like.axes)
    return msgspec.structs.replace(
        like,
        operand_bytes=operand,
        wire_bytes=wire_bytes(like.kind, operand, group),
        group=group,
        participants=math.prod(axes.values()),
        then_sliced=weights.bytes([one.then_sliced for one in corners]),
        values=[],
    )


def _place(row: Sequence[ArrayPlace], weights: _Weights) -> ArrayPlace:
    *corners, like = row
    if len({(one.name, one.dtype, str(one.spec), len(one.shape)) for one in row}) > 1:
        raise _Changed
    sizes = zip(*(one.shape for one in corners), strict=True)
    return msgspec.structs.replace(
        like,
        shape=[weights.size(size) for size in sizes],
        bytes_per_device=weights.bytes([one.bytes_per_device for one in corners]),
    )


def _equal(predicted: ProgramContents, found: Any) -> bool:
    """Returns whether what was predicted for a mesh is what was counted there."""
    times, repeated = predicted.computed_times, found.computed_times
    return (
        [_facts(one) for one in predicted.collectives] == [_facts(one) for one in found.collectives]
        and predicted.inputs == found.inputs
        and predicted.outputs == found.outputs
        and (times is None or not repeated or abs(times / repeated - 1) < _TIMES_APART)
    )


def _facts(one: Collective) -> tuple[Any, ...]:
    return one.operand_bytes, one.wire_bytes, one.then_sliced
