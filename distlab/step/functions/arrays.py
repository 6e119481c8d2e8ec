"""Arrays that a replica function uses from outside, without receiving them as arguments.

A program holds them as constants, which every replica uses whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import jax
from jax.sharding import AbstractMesh, Mesh

from distlab.devices.jax_internals import ConcreteArray, uncommitted
from distlab.devices.pieces import first_piece, is_divided, is_of_parts, moved
from distlab.errors import ShardingError
from distlab.text.shown import shown, shown_text

_NO_MESH: Final = AbstractMesh((), ())


def whole_on(mesh: Mesh, constants: Iterable[Any]) -> bool:
    """Returns whether constants of a trace lie whole on a mesh, and none on another one."""
    constants = list(constants)
    noted = [own for own in map(_noted_mesh, constants) if not own.empty]
    alike = all(own == mesh.abstract_mesh for own in noted)
    return bool(noted) and alike and not any(map(is_divided, constants))


def require_usable(function: str, arrays: Iterable[Any], error: Exception) -> None:
    """Names an array from outside that a program can't hold, where that led to an error.

    It can hold a divided one that it combines with no other, and a whole one of a mesh that is no
    input of what the function differentiates, maps or scans.
    """
    on_mesh = "mesh" in shown_text(error).lower()
    for array in arrays:
        if type(array) is not ConcreteArray:
            continue
        if is_divided(array) or (on_mesh and not _noted_mesh(array).empty):
            raise ShardingError(
                f"{function} uses {shown(array)} from outside, which lies on "
                f"{len(array.sharding.device_set)} devices, so that this step can't hold it. "
                "Pass it in args=(...), or use numpy.asarray of it."
            ) from error


def _noted_mesh(constant: Any) -> AbstractMesh:
    return jax.typeof(constant).sharding.mesh if isinstance(constant, jax.Array) else _NO_MESH


def constant(array: Any) -> Any:
    """Returns a program's constant without the devices on which it lies as equal copies."""
    several = type(array) is ConcreteArray and len(array.sharding.device_set) > 1
    if several and is_of_parts(array):
        return uncommitted(moved(array, array.sharding.mesh.devices.flat[0]))
    if several and not is_divided(array):
        return uncommitted(first_piece(array))
    return array
