"""Checks of what verbs receive: functions, their arguments, arrays."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.devices.jax_internals import ConcreteArray, being_transformed, placing
from distlab.errors import (
    ContextError,
    DonatedError,
    StructureError,
    ValueShapeError,
)
from distlab.text.shown import said_by_jax, shown
from distlab.user_code import line_text
from distlab.values.distributed import Mirrored, PerReplica
from distlab.values.plain_arrays import are_of_devices, unshared
from distlab.values.reduce_op import ReduceOp
from distlab.values.wide_integers import require_kept

_LAZY: Final = (
    *(inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction),
)


def is_array_like(value: Any) -> bool:
    """Returns whether a leaf is an array of numbers that devices can hold, or a number."""
    if isinstance(value, np.ndarray | np.generic):
        return are_of_devices(value.dtype) and value.dtype.isnative
    return isinstance(value, jax.Array | bool | int | float | complex)


def require_alive(array: Any, what: str) -> None:
    """Checks that an array has numbers, now or in the program that is being traced."""
    if type(array) is ConcreteArray and array.is_deleted():
        raise DonatedError(
            f"{what} was deleted, or donated to an earlier call, so it can't be used again: "
            f"{shown(array)}. Use the result of that call, or leave donate_argnums out of it."
        )
    if isinstance(array, jax.core.Tracer) and not being_transformed():
        raise ContextError(
            f"{what} was kept from inside a function that JAX transformed, where it had no "
            f"numbers: {shown(array)}. Return values from that function instead of storing them."
        )


def require_components(value: PerReplica, label: str, replicas: int) -> None:
    """Checks that a per-replica value has an array for each replica."""
    if not np.ndim(value.stacked):
        value.require_axis()
    if np.shape(value.stacked)[:1] != (replicas,):
        raise StructureError(
            f"{label} must have a component for each of {replicas} replicas, got {value.brief()}. "
            "It belongs to another strategy: make it with the strategy that runs the function."
        )


def function_name(fn: Callable[..., Any]) -> str:
    """Returns a function's qualified name without the functions, or the partials, around it."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__qualname__", type(fn).__qualname__)
    return str(name).rsplit("<locals>.", 1)[-1]


def code_of(fn: Callable[..., Any]) -> CodeType | None:
    """Returns the code of a function, also of one in partials and decorators; None for none."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(inspect.unwrap(fn), "__code__", None)


def function_source(fn: Callable[..., Any]) -> str:
    """Returns the file and line of a function's definition; empty when it has none."""
    code = code_of(fn)
    return "" if code is None else line_text(code.co_filename, code.co_firstlineno)


def require_plain(fn: Callable[..., Any], verb: str = "run") -> None:
    """Checks that a call of a function, or of another object, runs its body."""
    called = _body(fn)
    if any(is_lazy(called) for is_lazy in _LAZY):
        raise StructureError(
            f"{verb} needs a function that returns its result, but {function_name(fn)} is a "
            "generator or async function, whose body starts only when something iterates or "
            "awaits it. Write a plain function, and loop outside of it."
        )


def _body(fn: Any) -> Any:
    """Returns the routine that a call of a function, or of another object, runs."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn if inspect.isroutine(fn) else type(fn).__call__


def checked_call(
    verb: str, fn: Any, args: Any, kwargs: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns `args` as a tuple and `kwargs` as a dict, for a verb that calls `fn`."""
    if not callable(fn):
        raise StructureError(
            f"{verb} needs a function, got {shown(fn)}. Pass the function itself, and its "
            "arguments as args=(...)."
        )
    if not isinstance(args, tuple | list):
        raise ValueShapeError(
            f"args must be a tuple or list of fn's arguments, got a {type(args).__name__}. For one "
            "argument x write args=(x,)."
        )
    if kwargs is not None and not isinstance(kwargs, dict):
        raise ValueShapeError(
            f"kwargs must be a dict of fn's named arguments, got a {type(kwargs).__name__}. Write "
            "kwargs={'name': value}."
        )
    return tuple(args), kwargs or {}


def declared_array(value: Mirrored, label: str) -> jax.Array:
    """Returns the array of a result that a replica function declares the same on all replicas."""
    try:
        return jnp.asarray(value.array)
    except (TypeError, ValueError, OverflowError) as error:
        raise StructureError(
            f"A Mirrored value is one array, but {label} is Mirrored({shown(value.array)}). "
            "Return other values as they are; make each array of a nest Mirrored: "
            "jax.tree.map(lambda leaf: distlab.Mirrored(leaf) if isinstance(leaf, jax.Array) else "
            "leaf, nest)."
        ) from error


def summable(array: jax.Array, op: ReduceOp) -> jax.Array:
    """Returns an array in a dtype that holds its sum: bools are counted, means never wrap."""
    small = jnp.issubdtype(array.dtype, jnp.integer) and array.dtype.itemsize < 4
    wider = array.dtype == bool or (small and op is ReduceOp.MEAN)
    return array.astype(jnp.int32) if wider else array


def require_value(value: Any, verb: str) -> None:
    """Checks that there is something to combine: a step that returns nothing has forgotten to."""
    if value is None:
        raise ValueShapeError(
            f"{verb} combines arrays and numbers, got None, which a function without a return "
            "statement returns. Return the values from the function that run calls."
        )


def way_to_components(value: Any) -> str:
    """Returns the remedy for a plain value instead of a per-replica one."""
    if isinstance(value, bool | int | float | complex):
        return (
            "run returns Python's numbers as they are. Return jnp.asarray(number) from the "
            "function for a component of each replica"
        )
    return "Pass what run returned"


def as_array(value: Any, what: str, dtype: Any = None) -> jax.Array:
    """Returns an array-like as an array; `what` receives it."""
    require_alive(value, f"A value of {what}")
    if dtype is None:
        require_kept(value, f"A value of {what}")
    try:
        with placing():
            return jnp.asarray(unshared(value), dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueShapeError(
            f"{what} needs arrays or numbers, got a {type(value).__name__}: {shown(value)}. "
            f"{said_by_jax(error, 400)} Leave it out, or convert it."
        ) from error
