"""Objects that give something else at each use: iterators, open files, random generators, queues.

The function's Python runs when it is compiled. It would take from such an argument once, and every
later step would have what it took.
"""

from __future__ import annotations

import queue
import random
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, Final

import numpy as np

_RANDOM: Final = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
_QUEUES: Final = (queue.Queue, queue.SimpleQueue)
_FILES: Final = ("read", "readline")


def is_used_up(value: Any) -> bool:
    """Returns whether each use of an object takes something from it."""
    return isinstance(value, (Iterator, AsyncIterator, Awaitable, *_RANDOM, *_QUEUES))


def refusal(value: Any, name: str) -> str:
    """Returns why a compiled function does not take such an object, and what to pass in its place.

    Args:
      value: The object.
      name: The name of the argument.
    """
    return (
        f"{name} is a {type(value).__name__}, from which the function would take once, when it is "
        f"compiled: every later step would have the same. {_way_out(value, name)}"
    )


def _way_out(value: Any, name: str) -> str:
    if isinstance(value, _RANDOM):
        return (
            "Pass numbers that were drawn outside, or a key of jax.random: "
            "run(fn, args=(jax.random.fold_in(key, step),))."
        )
    if isinstance(value, _QUEUES):
        return f"Pass what it holds: run(fn, args=({name}.get(),))."
    if isinstance(value, AsyncIterator | Awaitable):
        return "Await it outside, and pass the result."
    if all(hasattr(value, verb) for verb in _FILES):
        return "Read outside, and pass the numbers as an array."
    return f"Pass a value: run(fn, args=(next({name}),))."
