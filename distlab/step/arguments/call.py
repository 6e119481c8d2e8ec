"""One call of `run`: its arguments flattened, keyed and marked by its options, once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, TypeAlias, final

import jax
import numpy as np

from distlab.context.modes import RunOptions
from distlab.devices import jax_internals
from distlab.devices.jax_internals import ConcreteArray
from distlab.errors import OptionError
from distlab.step.arguments import in_place
from distlab.step.arguments.in_place import Taken
from distlab.step.arguments.in_use import Use
from distlab.step.arguments.names import BY_POSITION, parameters_of_kinds
from distlab.step.functions.identity import Static, leaf_key
from distlab.text.shown import shown
from distlab.values.checks import checked_call
from distlab.values.distributed import DistributedValues, Mirrored

Key: TypeAlias = tuple[Any, ...]
"""The structure of the arguments, the key of each leaf, the donated positions, JAX's settings."""

_flatten: Final = jax.tree_util.default_registry.flatten


@final
class Call:
    """One call of `run`."""

    __slots__ = ("args", "donated", "fn", "key", "kwargs", "leaves", "taken", "traced")

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Any,
        kwargs: Any,
        options: RunOptions | None,
        use: Use | None,
        *,
        eagerly: bool,
    ) -> None:
        if type(args) is not tuple or type(kwargs) is not dict:
            args, kwargs = checked_call("run", fn, args, kwargs)
        self.fn = fn
        self.donated: tuple[int, ...] = ()
        if options is not None:
            marked = _marked(options, fn, args, kwargs)
            if not eagerly:
                args, kwargs, self.donated = marked
        self.args: tuple[Any, ...] = args
        self.kwargs: dict[str, Any] = kwargs
        self.taken: Taken | None = None
        if use is None:
            leaves, structure = _flatten((args, kwargs))
        else:
            leaves, structure, self.taken = in_place.taken(fn, args, kwargs, use)
            if self.taken is not None:
                self.args, self.kwargs = self.taken.args, self.taken.kwargs
        self._keyed(leaves, structure)

    def with_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Returns the same call with arguments that were converted."""
        new = object.__new__(Call)
        new.fn, new.args, new.kwargs = self.fn, args, kwargs
        new.donated, new.taken = self.donated, self.taken
        new._keyed(*jax.tree.flatten((args, kwargs)))
        return new

    def without_mirrored(self) -> Key:
        """Returns the key with plain arrays instead of mirrored ones, the same to a program."""
        args, kwargs = jax.tree.map(
            lambda leaf: leaf.array if type(leaf) is Mirrored else leaf,
            (self.args, self.kwargs),
            is_leaf=lambda leaf: isinstance(leaf, DistributedValues),
        )
        return self.with_arguments(args, kwargs).key

    def _keyed(self, leaves: list[Any], structure: Any) -> None:
        """Sets the leaves and the key."""
        keys: list[Any] = []
        self.leaves = leaves
        self.traced = False
        for leaf in leaves:
            if type(leaf) is ConcreteArray:  # wherever it is: the inputs are placed on the mesh
                aval = leaf.aval
                keys.append((aval.shape, aval.dtype, aval.weak_type))
            else:
                keys.append(leaf_key(leaf))
                self.traced = self.traced or isinstance(leaf, jax.core.Tracer)
        self.key = (structure, tuple(keys), self.donated, jax_internals.configuration())


def _marked(
    options: RunOptions, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], tuple[int, ...]]:
    """Returns the arguments with static ones in `Static`, and the positions of donated ones."""
    count = len(args)
    donated = _donated(options.donate_argnums, count)
    numbers = _static_numbers(options.static_argnums, fn, count)
    names = _static_names(options.static_argnames, fn, kwargs)
    if not numbers and not names:
        return args, kwargs, donated
    # As in jax.jit, a parameter is static by either option, however the call passes it.
    parameters = _parameters(fn)
    numbers |= {n for n, name in enumerate(parameters[:count]) if name in names}
    names |= {parameters[n] for n in numbers if n < len(parameters)}
    return (
        tuple(
            _static(value, parameters[n] if n < len(parameters) else f"args[{n}]")
            if n in numbers
            else value
            for n, value in enumerate(args)
        ),
        {name: _static(value, name) if name in names else value for name, value in kwargs.items()},
        donated,
    )


def _donated(positions: int | tuple[int, ...], count: int) -> tuple[int, ...]:
    """Returns the positions, which `RunOptions` knows to be numbers."""
    positions = (positions,) if isinstance(positions, int) else positions
    if not all(n < count for n in positions):
        raise OptionError(
            f"donate_argnums must be positions of arguments in args, which has {count} here, got "
            f"{shown(positions)}. For the first argument write donate_argnums=0."
        )
    return positions


def _static_numbers(positions: Any, fn: Callable[..., Any], count: int) -> set[int]:
    """Returns the positions of static arguments, counted from the front."""
    positions = (positions,) if isinstance(positions, int) else positions
    most = max(count, len(_parameters(fn))) if positions else 0
    if (
        not isinstance(positions, tuple | list)
        or any(isinstance(n, bool) or not isinstance(n, int | np.integer) for n in positions)
        or not all(-most <= n < most for n in positions)
    ):
        raise OptionError(
            f"static_argnums must be positions of the function's arguments, which has {most} "
            f"here, got {shown(positions)}. For the second argument write static_argnums=1."
        )
    return {int(n) % most for n in positions}


def _static_names(names: Any, fn: Callable[..., Any], kwargs: dict[str, Any]) -> set[str]:
    names = (names,) if isinstance(names, str) else names
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        raise OptionError(
            f"static_argnames must be a name or a tuple of names, got {shown(names)}. Write "
            "static_argnames='training'."
        )
    by_keyword = parameters_of_kinds(fn, inspect.Parameter.KEYWORD_ONLY) if names else ()
    known = {*kwargs, *_parameters(fn), *by_keyword} if names else set()
    unknown = sorted(set(names) - known)
    if unknown:
        raise OptionError(
            f"static_argnames names {unknown}, but the function's arguments are "
            f"{sorted(known)}. Use their names."
        )
    return set(names)


def _static(value: Any, name: str) -> Static:
    try:
        hash(value)
    except TypeError as error:
        raise OptionError(
            f"{name} is static, so it must have a hash, got a {type(value).__name__}: "
            f"{shown(value)}. Pass a tuple instead of a list, a frozen dataclass instead of a "
            "dict; an array is never static."
        ) from error
    return Static(value)


def _parameters(fn: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the names of the parameters that may be passed by position."""
    if type(fn) is FunctionType and not hasattr(fn, "__wrapped__"):
        return fn.__code__.co_varnames[: fn.__code__.co_argcount]
    return parameters_of_kinds(fn, *BY_POSITION)
