"""What tells the plan of one dataset from that of another, in every process.

`snapshot` keeps the elements of each plan apart, as TensorFlow does by the hash of its graph.
Seeds that nobody has chosen differ in each process, and are left out, as all seeds are; so are
objects of which nothing but their class is known, such as iterables.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

import numpy as np

from distlab.data.plan.plan import Node

_LEFT_OUT: Final = frozenset({"seed", "threads", "at_a_time"})
_LETTERS: Final = 16


def fingerprint(plan: Node) -> str:
    """Returns letters that differ for plans with other operations, numbers or functions."""
    digest = hashlib.blake2b()
    _Reader(digest).add(plan)
    return digest.hexdigest()[:_LETTERS]


class _Reader:
    """Adds values to a digest, each object once."""

    def __init__(self, digest: Any) -> None:
        self._digest = digest
        self._seen: dict[int, Any] = {}

    def add(self, value: Any) -> None:
        """Adds a value."""
        if value is None or isinstance(value, bool | int | float | complex | str | bytes | range):
            self._say(repr(value))
        elif isinstance(value, np.ndarray | np.generic):
            self._array(np.asarray(value))
        elif id(value) in self._seen:
            self._say("again")
        else:
            self._seen[id(value)] = value
            self._object(value)

    def _object(self, value: Any) -> None:
        self._say(type(value).__qualname__)
        if isinstance(value, CodeType):
            self._digest.update(value.co_code)
            self._all([value.co_names, value.co_consts])
        elif isinstance(value, FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
            self._all([value.__code__, value.__defaults__, value.__kwdefaults__, cells])
        elif isinstance(value, functools.partial):
            self._all([value.func, value.args, value.keywords])
        elif isinstance(value, MethodType):
            self._all([value.__func__])
        elif isinstance(value, Mapping):
            self._all([part for item in value.items() for part in item])
        elif isinstance(value, tuple | list):
            self._all(value)
        elif is_dataclass(value):
            for field in fields(value):
                if field.name not in _LEFT_OUT and not field.name.startswith("_"):
                    self._say(field.name)
                    self.add(getattr(value, field.name))

    def _all(self, values: Any) -> None:
        for value in values:
            self.add(value)

    def _array(self, array: np.ndarray) -> None:
        self._say(f"{array.dtype} {array.shape}")
        if array.dtype == object:
            self._all(array.ravel().tolist())
        else:
            self._digest.update(np.ascontiguousarray(array).view(np.uint8).data)

    def _say(self, text: str) -> None:
        self._digest.update(text.encode("utf-8", "backslashreplace") + b"\0")


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
