"""Which shapes can be put one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distlab.errors import ValueShapeError


def gather_axis(shape: tuple[int, ...], axis: Any, verb: str) -> int:
    """Returns the axis to gather along, counted from the front.

    Raises:
      ValueShapeError: there is no such axis; a scalar has none.
    """
    rank = len(shape)
    if type(axis) is not int or not -rank <= axis < rank:
        raise ValueShapeError(
            f"{verb} puts arrays one after another along an axis, but a component of shape "
            f"{list(shape)} has no axis {axis!r}. Reshape scalars to [1] first."
        )
    return axis % rank


def require_joinable(
    shapes: Sequence[tuple[int, ...]], axis: int, verb: str = "all_gather"
) -> None:
    """Checks that arrays of these shapes can be put one after another along an axis.

    Raises:
      ValueShapeError: they differ in another dimension.
    """
    if len({(len(shape), shape[:axis], shape[axis + 1 :]) for shape in shapes}) > 1:
        raise ValueShapeError(
            f"{verb} along axis {axis} needs arrays that agree in all other dimensions, got "
            f"{', '.join(str(list(shape)) for shape in dict.fromkeys(shapes))}. Pad them, or "
            "gather along the axis in which they differ."
        )
