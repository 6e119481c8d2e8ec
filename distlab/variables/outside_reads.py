"""Reads of variables of other libraries while a function is traced, which holds what they read.

A variable of distlab becomes an argument of the program. One of Keras can't, and its array a
constant: so it says when it is read.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Protocol


class Holder(Protocol):
    """Variable of NNX or another library that holds an array in place."""

    def get_raw_value(self) -> Any:
        """Returns the array."""

    def set_raw_value(self, value: Any) -> None:
        """Gives it another array."""


class _Noting(threading.local):
    """Reads of this thread's trace so far; None while none is made."""

    read: dict[int, tuple[str, Holder]] | None = None


_noting = _Noting()


def note(variable: object, name: str, holder: Holder) -> None:
    """Notes that the function that is being traced reads an array from outside."""
    if _noting.read is not None:
        _noting.read.setdefault(id(variable), (name, holder))


@contextlib.contextmanager
def noting() -> Iterator[dict[int, tuple[str, Holder]]]:
    """Collects the names and holders passed to `note` while a function is traced."""
    before = _noting.read
    read: dict[int, tuple[str, Holder]] = {}
    _noting.read = read
    try:
        yield read
    finally:
        _noting.read = before
