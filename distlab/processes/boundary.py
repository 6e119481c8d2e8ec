"""The boundary of verbs that call JAX: errors leave it with their cause, and JAX as it was."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax

from distlab.devices import jax_internals
from distlab.processes import failures
from distlab.text.shown import shown_text

_P = ParamSpec("_P")
_R = TypeVar("_R")


def verb(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Returns a function that calls JAX, such that its errors pass `settle`."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        before = jax_internals.local_state()
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            settle(error, before)
            raise

    return call


def settle(error: BaseException, before: list[Any] | None = None) -> None:
    """Raises the lost worker, or the interrupt, of which JAX made another error.

    An interrupt while JAX enters or leaves a block of its settings or of a trace leaves them set:
    so those of before are restored. While JAX (before 0.11.2) fills a cache, it leaves an entry
    unfinished, at which the next call raises RecursionError, and another thread never returns: so
    caches are emptied.
    """
    interrupt = _interrupt_in(error)
    unfinished = isinstance(error, RecursionError) and "Recursively calling <" in str(error)
    if interrupt is not None or unfinished or isinstance(error, KeyboardInterrupt):
        if before is not None:
            jax_internals.restore(before)
        jax.clear_caches()
    if interrupt is not None:
        raise interrupt from None
    failures.explain(error)


def _interrupt_in(error: BaseException) -> KeyboardInterrupt | None:
    """Returns the interrupt of which JAX made another error where C++ calls Python."""
    if not isinstance(error, ValueError | RuntimeError):
        return None
    if isinstance(error.__cause__, KeyboardInterrupt):
        return error.__cause__
    text = shown_text(error)
    last = text.rstrip().rpartition("\n")[2]
    hidden = "Traceback (most recent call last)" in text and last.startswith("KeyboardInterrupt")
    return KeyboardInterrupt() if hidden else None
