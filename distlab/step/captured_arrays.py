"""Arrays that a replica function uses from outside, without receiving them as arguments.

A program holds them as constants, which every replica uses whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from distlab.devices.jax_internals import ConcreteArray, uncommitted
from distlab.devices.pieces import first_piece, is_divided
from distlab.errors import ShardingError
from distlab.step.function_identity import referenced
from distlab.text.shown import shown
from distlab.values.checks import function_name, require_alive


def require_memory(fn: Callable[..., Any], arrays: Iterable[Any]) -> None:
    """Checks that the arrays that a function uses from outside have their memory.

    Args:
      fn: The function.
      arrays: The arrays; other values are passed over.

    Raises:
      DonatedError: One was deleted.
    """
    for array in arrays:
        if type(array) is ConcreteArray:
            what = f"{_named(fn, array)}, which {function_name(fn)} uses from outside,"
            require_alive(array, what)


def divided_text(fn: Callable[..., Any], arrays: Iterable[Any]) -> str:
    """Returns what is wrong where a program can't hold an array from outside; empty for none.

    It can hold a divided array that it combines with no other, as `reduce` does.

    Args:
      fn: The function.
      arrays: The arrays that it uses; other values are passed over.
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


def require_references(fn: Callable[..., Any]) -> None:
    """Checks the arrays that a function's defaults, closure and globals hold.

    Args:
      fn: The function.

    Raises:
      ShardingError: One is divided over devices.
      DonatedError: One was deleted.
    """
    arrays = [value for _, value in referenced(fn)]
    require_memory(fn, arrays)
    text = divided_text(fn, arrays)
    if text:
        raise ShardingError(text)


def explain_devices(fn: Callable[..., Any], error: BaseException) -> None:
    """Names the array that an eager function uses from outside, where JAX can't combine it.

    Args:
      fn: The function.
      error: What the function raised.

    Raises:
      ShardingError: JAX refused to combine arrays of different devices, and the function uses
        an array that lies on several.
    """
    if not isinstance(error, ValueError) or "incompatible devices" not in str(error):
        return
    for name, array in referenced(fn):
        if type(array) is ConcreteArray and len(array.sharding.device_set) > 1:
            raise ShardingError(
                f"{name}, {shown(array)}, lies on {len(array.sharding.device_set)} devices, and "
                f"{function_name(fn)} uses it from outside, as ordinary Python on one device for "
                "each replica. Pass it in args=(...), of which each replica gets its copy."
            ) from error


def constant(array: Any) -> Any:
    """Returns a program's constant without the devices on which it lies as equal copies.

    Args:
      array: The constant.
    """
    several = type(array) is ConcreteArray and len(array.sharding.device_set) > 1
    if several and not is_divided(array):
        return uncommitted(first_piece(array))
    return array


def _named(fn: Callable[..., Any], array: Any) -> str:
    names = (name for name, value in referenced(fn) if value is array)
    return next(names, "An array")
