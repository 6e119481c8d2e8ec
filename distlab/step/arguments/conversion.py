"""Arguments of `run` as a program takes them: checked, and divided arrays recognized.

This runs where no program is known for the arguments, so it may take its time.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final, TypeAlias, final

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
from distlab.values.distributed import DistributedValues, Mirrored
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

    Each array that the user divided becomes a distributed value. Python numbers in Equinox
    modules become static, as in `equinox.filter_jit`.
    """
    conversion = _Conversion(fn, len(args), mesh, compiled=compiled)
    return _mapped(conversion.leaf, (), (args, kwargs), _ends)


@final
class _Conversion:
    """Checks and converts the leaves of one call's arguments."""

    def __init__(self, fn: Any, count: int, mesh: ReplicaMesh, *, compiled: bool) -> None:
        self._fn = fn
        self._count = count
        self._mesh = mesh
        self._compiled = compiled

    def leaf(self, path: Path, value: Any) -> Any:
        """Returns a part of the arguments as a program takes it."""
        if isinstance(value, jax.Array | np.ndarray) and (is_divided(value) or is_stack(value)):
            return as_distributed(value, self._mesh, f"Argument {self._label(path)}")
        if is_state_holder(value):
            raise ArgumentTypeError(refusal(value, self._label(path)))
        if is_nnx_state(value):
            return _mapped(self.leaf, path, value, _is_distributed)
        if is_equinox_module(value):
            return self._module(path, value)
        why = self._why_not(path, value)
        if why is not None:
            raise ArgumentTypeError(why)
        if isinstance(value, np.ndarray | np.generic):
            require_kept(value, self._label(path), ArgumentValueError)
        return value

    def _why_not(self, path: Path, value: Any) -> str | None:
        """Returns why the function can't have a part of the arguments; None if it can."""
        if isinstance(value, Static):
            value = value.value
        elif isinstance(value, Mirrored):
            value = value.array
        if isinstance(value, jax.Array):
            return None
        label = self._label(path)
        if self._compiled and isinstance(value, _ONCE):
            return (
                f"{label} is a {type(value).__name__}, and a compiled function's Python takes from "
                f"it once, when it is traced. Pass a value, such as next({label}) or a key of "
                "jax.random."
            )
        return None

    def _module(self, path: Path, module: Any) -> Any:
        def inside(path: Path, value: Any) -> Any:
            number = isinstance(value, int | float | complex) and not is_static(value)
            return Static(value) if number and self._compiled else self.leaf(path, value)

        return _mapped(inside, path, module, lambda part: part is not module and _ends(part))

    def _label(self, path: Path) -> str:
        return argument_label(path, parameter_names(self._fn, self._count))


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
