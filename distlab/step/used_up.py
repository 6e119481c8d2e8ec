"""Objects that give something else at each use: iterators, open files, random generators, queues.

The function's Python runs when it is compiled. It would take from such an argument once, and every
later step would have what it took.
"""

from __future__ import annotations

import queue
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np

from distlab.values.attributes import attribute
from distlab.values.nests import explain

RANDOM: Final = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
"""The classes of the random generators of NumPy and Python."""

_QUEUES: Final = (queue.Queue, queue.SimpleQueue)
_FILES: Final = ("read", "readline")


def is_used_up(value: Any) -> bool:
    """Returns whether each use of an object takes something from it."""
    return isinstance(value, (Iterator, AsyncIterator, Awaitable, *RANDOM, *_QUEUES))


def flattened(
    arguments: tuple[tuple[Any, ...], dict[str, Any]],
    is_leaf: Callable[[Any], bool] | None = None,
) -> tuple[list[Any], jax.tree_util.PyTreeDef]:
    """Flattens arguments as `jax.tree.flatten` does; an iterator is a leaf.

    To JAX it is one, too, with a warning. Where warnings are errors, it would end the step before
    the arguments are looked at. Only then is each part of them asked whether it is an iterator.
    """
    try:
        return jax.tree.flatten(arguments, is_leaf=is_leaf)
    except DeprecationWarning:
        return jax.tree.flatten(
            arguments,
            is_leaf=lambda part: isinstance(part, Iterator) or bool(is_leaf and is_leaf(part)),
        )
    except ValueError as error:
        for name, nest in zip(("args", "kwargs"), arguments, strict=True):
            explain(nest, name, error)
        raise


@dataclass(frozen=True)
class _Held:
    """An iterator that JAX does not see."""

    iterator: Iterator[Any]


def _is_no_nest(part: Any) -> bool:
    return not isinstance(part, dict | list | tuple)


def held(nest: Any) -> Any:
    """Returns arguments with each iterator held, so that JAX warns of none."""
    return jax.tree.map(
        lambda part: _Held(part) if isinstance(part, Iterator) else part, nest, is_leaf=_is_no_nest
    )


def released(nest: Any) -> Any:
    """Returns arguments with the iterators that `held` holds."""
    return jax.tree.map(
        lambda part: part.iterator if type(part) is _Held else part, nest, is_leaf=_is_no_nest
    )


def refusal(value: Any, name: str) -> str:
    """Returns the error text for an iterator or generator of random numbers."""
    return (
        f"{name} is a {type(value).__name__}, from which the function would take once, when it is "
        f"compiled: every later step would have the same. {_way_out(value, name)}"
    )


def _way_out(value: Any, name: str) -> str:
    if isinstance(value, RANDOM):
        return (
            "Pass numbers that were drawn outside, or a key of jax.random: "
            "run(fn, args=(jax.random.fold_in(key, step),))."
        )
    if isinstance(value, _QUEUES):
        return f"Pass what it holds: run(fn, args=({name}.get(),))."
    if isinstance(value, AsyncIterator | Awaitable):
        return "Await it outside, and pass the result."
    if all(attribute(value, verb) for verb in _FILES):
        return "Read outside, and pass the numbers as an array."
    return f"Pass a value: run(fn, args=(next({name}),))."
