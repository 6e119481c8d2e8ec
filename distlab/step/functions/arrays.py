"""Arrays that a replica function uses from outside, without receiving them as arguments.

A program holds them as constants, which every replica uses whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import jax
from jax.sharding import AbstractMesh, Mesh

from distlab.devices.jax_internals import ConcreteArray, uncommitted
from distlab.devices.pieces import first_piece, is_divided
from distlab.errors import ShardingError
from distlab.step.functions.identity import referenced
from distlab.text.shown import shown, shown_text
from distlab.values.checks import function_name

_NO_MESH: Final = AbstractMesh((), ())


def divided_text(fn: Callable[..., Any], arrays: Iterable[Any]) -> str:
    """Returns the error for a divided array from outside; empty for none.

    It can hold a divided array that it combines with no other, as `reduce` does.
    """
    for array in arrays:
        if type(array) is ConcreteArray and is_divided(array):
            return (
                f"{_named(fn, array)}, {shown(array)}, is divided over "
                f"{len(array.sharding.device_set)} devices, and {function_name(fn)} uses it from "
                "outside, where every replica needs the whole array. Pass it in args=(...) to give "
                "each replica its part, or copy it whole to each device with "
                "jax.device_put(array, strategy.mesh.whole)."
            )
    return ""


def whole_on(mesh: Mesh, constants: Iterable[Any]) -> bool:
    """Returns whether some constants of a trace lie on a mesh, and a program of it can hold them.

    It can where all are whole, and none lies on another mesh.
    """
    constants = list(constants)
    noted = [own for own in map(_noted_mesh, constants) if not own.empty]
    alike = all(own == mesh.abstract_mesh for own in noted)
    return bool(noted) and alike and not any(map(is_divided, constants))


def on_a_mesh_text(fn: Callable[..., Any], arrays: Iterable[Any]) -> str:
    """Returns the error for a whole array of a mesh; empty for none.

    It can hold one that is not an input of what the function differentiates, maps or scans.
    """
    for array in arrays:
        if type(array) is ConcreteArray and not _noted_mesh(array).empty:
            return (
                f"{_named(fn, array)}, {shown(array)}, lies on a mesh of {_noted_mesh(array).size} "
                f"devices, and {function_name(fn)} differentiates, maps or scans over it from "
                "outside, where this step can't use it. Pass it in args=(...), or use "
                "numpy.asarray of it."
            )
    return ""


def _noted_mesh(constant: Any) -> AbstractMesh:
    return jax.typeof(constant).sharding.mesh if isinstance(constant, jax.Array) else _NO_MESH


def require_references(fn: Callable[..., Any]) -> None:
    """Checks the arrays that a function's defaults, closure and globals hold."""
    arrays = [value for _, value in referenced(fn)]
    text = divided_text(fn, arrays)
    if text:
        raise ShardingError(text)


def explain_devices(fn: Callable[..., Any], error: BaseException) -> None:
    """Names the array that an eager function uses from outside, where JAX can't combine it."""
    if not isinstance(error, ValueError) or "incompatible devices" not in shown_text(error):
        return
    for name, array in referenced(fn):
        if type(array) is ConcreteArray and len(array.sharding.device_set) > 1:
            raise ShardingError(
                f"{name}, {shown(array)}, lies on {len(array.sharding.device_set)} devices, and "
                f"{function_name(fn)} uses it from outside, as ordinary Python on one device for "
                "each replica. Pass it in args=(...), of which each replica gets its copy."
            ) from error


def constant(array: Any) -> Any:
    """Returns a program's constant without the devices on which it lies as equal copies."""
    several = type(array) is ConcreteArray and len(array.sharding.device_set) > 1
    if several and not is_divided(array):
        return uncommitted(first_piece(array))
    return array


def _named(fn: Callable[..., Any], array: Any) -> str:
    names = (name for name, value in referenced(fn) if value is array)
    return next(names, "An array")
