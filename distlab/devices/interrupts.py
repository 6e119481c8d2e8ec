"""What an interrupt of JAX leaves behind: one that comes out as itself, and caches that work."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

import jax

from distlab.devices import jax_internals

_P = ParamSpec("_P")
_R = TypeVar("_R")

LEFT_UNFINISHED: Final = (
    "An earlier interrupt left a cache of JAX unfinished. JAX's caches are empty now: call again."
)
"""What errors say that come of an interrupt elsewhere."""


def interruptible(verb: Callable[_P, _R]) -> Callable[_P, _R]:
    """Returns `verb`, which calls JAX, such that it can be called again after an interrupt.

    JAX may hide an interrupt in another error; here it comes out as itself. And one that comes
    while JAX before 0.11.2 enters into a cache what it is about to compute leaves that entry
    unfinished: the next call that needs it raises RecursionError ("Recursively calling"), and one
    from another thread waits for ever. JAX's caches are emptied then, and programs are compiled
    anew; also when such an error shows that an interrupt elsewhere left an entry.
    """

    @functools.wraps(verb)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return verb(*args, **kwargs)
        except BaseException as error:
            settle(error)
            raise

    return call


def settle(error: BaseException) -> None:
    """Empties JAX's caches after an interrupt of JAX; raises one that JAX has hidden."""
    interrupt = jax_internals.interrupt_in(error)
    if jax_internals.came_into_a_cache(error if interrupt is None else interrupt):
        jax.clear_caches()
    elif isinstance(error, RecursionError) and "Recursively calling <" in str(error):
        jax.clear_caches()
        if LEFT_UNFINISHED not in getattr(error, "__notes__", ()):  # in a verb's own verbs
            error.add_note(LEFT_UNFINISHED)
    if interrupt is not None:
        raise interrupt from None
