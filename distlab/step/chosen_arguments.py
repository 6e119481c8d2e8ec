"""The arguments that `RunOptions` names: donated ones and static ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from distlab.context.modes import RunOptions
from distlab.errors import OptionError
from distlab.step.arguments.names import BY_POSITION, parameters_of_kinds
from distlab.step.functions.statics import Static
from distlab.text.shown import shown
from distlab.values.distributed import DistributedValues


class Chosen(NamedTuple):
    """The arguments of one call, with what its options say of them.

    Attributes:
      args: The arguments; static ones are wrapped in `Static`.
      kwargs: The named arguments, likewise.
      donated: The positions of the donated arguments.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    donated: tuple[int, ...] = ()


def chosen_arguments(
    options: RunOptions | None,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Chosen:
    """Returns the arguments of a call with what its options say of them."""
    if options is None:
        return Chosen(args, kwargs)
    count = len(args)
    donated = _donated(options.donate_argnums, count)
    numbers = _static_numbers(options.static_argnums, fn, count)
    names = _static_names(options.static_argnames, fn, kwargs)
    if not numbers and not names:
        return Chosen(args, kwargs, donated)
    # As in jax.jit, a parameter is static by either option, however the call passes it.
    parameters = _parameters(fn)
    numbers |= {n for n, name in enumerate(parameters[:count]) if name in names}
    names |= {parameters[n] for n in numbers if n < len(parameters)}
    both = sorted(numbers.intersection(donated))
    if both:
        raise OptionError(
            f"An argument can't be donated and static: donate_argnums and static_argnums (or "
            f"static_argnames) both name {both} in args. A static argument is no array: leave it "
            "out of donate_argnums."
        )
    static_args = tuple(
        _static(value, _name(n, parameters)) if n in numbers else value
        for n, value in enumerate(args)
    )
    static_kwargs = {
        name: _static(value, name) if name in names else value for name, value in kwargs.items()
    }
    return Chosen(static_args, static_kwargs, donated)


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
    known = {*kwargs, *_parameters(fn), *_keyword_names(fn)} if names else set()
    unknown = sorted(set(names) - known)
    if unknown:
        raise OptionError(
            f"static_argnames names {unknown}, but the function's arguments are "
            f"{sorted(known)}. Use their names."
        )
    return set(names)


def _static(value: Any, name: str) -> Static:
    if isinstance(value, DistributedValues):
        raise OptionError(
            f"{name} is static, but has a component for each replica. Leave it out of "
            "static_argnums and static_argnames."
        )
    try:
        hash(value)
    except TypeError as error:
        raise OptionError(
            f"{name} is static, so it must have a hash, got a {type(value).__name__}: "
            f"{shown(value)}. Pass a tuple in place of a list, a frozen dataclass in place of a "
            "dict; an array is never static."
        ) from error
    return Static(value)


def _name(number: int, parameters: tuple[str, ...]) -> str:
    return parameters[number] if number < len(parameters) else f"args[{number}]"


def _parameters(fn: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the names of the parameters that may be passed by position."""
    if type(fn) is FunctionType and not hasattr(fn, "__wrapped__"):
        return fn.__code__.co_varnames[: fn.__code__.co_argcount]
    return parameters_of_kinds(fn, *BY_POSITION)


def _keyword_names(fn: Callable[..., Any]) -> tuple[str, ...]:
    return parameters_of_kinds(fn, inspect.Parameter.KEYWORD_ONLY)
