"""Checks that JAX's transformations, callbacks and settings allow a verb here."""

from __future__ import annotations

import sys
import threading

from distlab.devices import jax_internals
from distlab.errors import ContextError


def require_not_staged(verb: str) -> None:
    """Checks that a verb computes at once, and not in a program that is being traced."""
    if jax_internals.being_staged():
        raise ContextError(
            f"{verb} takes values from the devices at once, and was called inside jax.jit or "
            "another function that is being traced, where they have none yet. Call it before, and "
            "pass what it returns as an argument."
        )


def require_no_callback(what: str) -> None:
    """Checks that the caller is not a function that a running step calls back."""
    # XLA's threads are none that Python started.
    if isinstance(threading.current_thread(), threading._DummyThread) and _is_called_by_jax():
        raise ContextError(
            f"{what} in a function that a running step calls back (jax.pure_callback, io_callback "
            "or jax.debug.callback). It belongs to no replica, and would deadlock: the step "
            "waits for it. Give the callback what it needs as operands, and do the rest "
            "after the step, with what it returned."
        )


def _is_called_by_jax() -> bool:
    """Returns whether the outermost function of this thread is JAX's."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    module: str = frame.f_globals.get("__name__", "")
    return module.partition(".")[0] == "jax"
