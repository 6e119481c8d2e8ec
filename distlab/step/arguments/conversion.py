"""Arguments of `run` as a program takes them: checked, and divided arrays recognized.

This runs where no program is known for the arguments, so it may take its time.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final, TypeAlias

import jax
import numpy as np

from distlab.devices.mesh import ReplicaMesh
from distlab.devices.pieces import is_divided
from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab.step.arguments.names import argument_label, parameter_names
from distlab.step.functions.holders import (
    is_equinox_module,
    is_nnx_state,
    is_state_holder,
    refusal,
)
from distlab.step.functions.identity import Static, is_static
from distlab.values.distributed import DistributedValues
from distlab.values.sharded import as_distributed
from distlab.values.stacks import is_stack
from distlab.values.wide_integers import require_kept
from distlab.variables.variable import is_variable

Path: TypeAlias = tuple[Any, ...]
"""The keys that lead from `(args, kwargs)` to a part of it."""

_ONCE: Final = (
    *(Iterator, AsyncIterator),
    *(np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random),
)
"""Classes of objects that give something else at each use, of which a trace would see one."""


def converted(
    fn: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    mesh: ReplicaMesh,
    *,
    compiled: bool = True,
) -> Any:
    """Returns `(args, kwargs)` as a program takes them.

    Arrays that the user divided become distributed values. Python numbers in Equinox modules become
    static, as in `equinox.filter_jit`.
    """

    def label(path: Path) -> str:
        return argument_label(path, parameter_names(fn, len(args)))

    def leaf(path: Path, value: Any) -> Any:
        if is_divided(value) or is_stack(value):
            return as_distributed(value, mesh, f"Argument {label(path)}")
        if is_state_holder(value):
            raise ArgumentTypeError(refusal(value, label(path)))
        if is_nnx_state(value):
            return _mapped(leaf, path, value, _is_distributed)
        if is_equinox_module(value):
            ends = lambda part: part is not value and _ends(part)  # noqa: E731
            return _mapped(of_module, path, value, ends)
        if compiled and isinstance(value, _ONCE):
            raise ArgumentTypeError(
                f"{label(path)} is a {type(value).__name__}, and a compiled function's Python "
                "takes from it once, when it is traced. Pass a value, such as "
                f"next({label(path)}) or a key of jax.random."
            )
        if isinstance(value, np.ndarray | np.generic):
            require_kept(value, label(path), ArgumentValueError)
        return value

    def of_module(path: Path, value: Any) -> Any:
        number = isinstance(value, int | float | complex) and not is_static(value)
        return Static(value) if number and compiled else leaf(path, value)

    return _mapped(leaf, (), (args, kwargs), _ends)


def _mapped(
    function: Callable[[Path, Any], Any],
    path: Path,
    nest: Any,
    is_leaf: Callable[[Any], bool],
) -> Any:
    """Maps a function of the path and value of each leaf over a part of the arguments."""
    return jax.tree_util.tree_map_with_path(
        lambda inner, value: function((*path, *inner), value), nest, is_leaf=is_leaf
    )


def _is_distributed(value: Any) -> bool:
    return isinstance(value, DistributedValues) or is_variable(value)


def _ends(value: Any) -> bool:
    """Returns whether a part of the arguments is looked at as a whole."""
    return (
        _is_distributed(value)
        or is_nnx_state(value)
        or is_state_holder(value)
        or is_equinox_module(value)
        or isinstance(value, Iterator)  # of which JAX warns
    )
