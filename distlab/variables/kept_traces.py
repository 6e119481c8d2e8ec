"""Keeps JAX from using a trace again that holds what a variable was.

JAX keeps the trace of a function that `jax.jit`, `jax.checkpoint` or `jax.lax.scan` is given, for
arguments of the same shapes. What the function reads of variables is a part of that trace. A number
in JAX's context keeps traces apart: replica functions take another one once traces kept under
theirs hold a variable, at their start and where they assign one.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator

import jax

_context = jax.make_user_context(0)
"""The number, as a part of what JAX keeps traces by; 0 outside of replica functions."""

_numbers = itertools.count(1)


class _Process:
    unused = next(_numbers)
    """Under this number no kept trace holds a variable."""


class _Thread(threading.local):
    number = 0


_process, _thread = _Process(), _Thread()


def note_held() -> None:
    """Notes that a trace which JAX keeps holds what a variable is now."""
    if _process.unused == _thread.number:
        _process.unused = next(_numbers)


def note_assigned() -> None:
    """Takes another number, to the end of `apart`, if a kept trace may hold what a variable was."""
    if _thread.number not in (0, _process.unused):
        _thread.number = _process.unused
        _context(_thread.number).__enter__()


@contextlib.contextmanager
def apart(*, replica_function: bool) -> Iterator[None]:
    """Uses no kept trace that holds a variable in a block of code."""
    outer = _thread.number
    _thread.number = _process.unused if replica_function else 0
    try:
        with _context(_thread.number):
            yield
    finally:
        _thread.number = outer
        note_assigned()
