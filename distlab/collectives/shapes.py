"""Checks of shapes that are to be concatenated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.errors import ValueShapeError
from distlab.text.shown import shown


def gather_axis(shape: tuple[int, ...], axis: Any, verb: str) -> int:
    """Returns the axis to gather along, counted from the front."""
    rank = len(shape)
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise ValueShapeError(
            f"{verb} concatenates arrays along an axis, whose number must be a whole one, got "
            f"{shown(axis)}. Pass axis=0 to join batches."
        )
    if not -rank <= axis < rank:
        raise ValueShapeError(
            f"{verb} concatenates arrays along an axis, but a component of shape {list(shape)} has "
            f"no axis {shown(axis)}. Reshape scalars to [1] first."
        )
    return int(axis) % rank


def require_joinable(
    shapes: Sequence[tuple[int, ...]], axis: int, verb: str = "all_gather"
) -> None:
    """Checks that arrays of these shapes can be concatenated along an axis."""
    if len({(len(shape), shape[:axis], shape[axis + 1 :]) for shape in shapes}) > 1:
        raise ValueShapeError(
            f"{verb} along axis {axis} needs arrays that agree in all other dimensions, got "
            f"{', '.join(str(list(shape)) for shape in dict.fromkeys(shapes))}. Pad them, or "
            "gather along the axis in which they differ."
        )
