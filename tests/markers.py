"""Markers by what a test uses, the time of unmarked tests, and turns of tests that measure.

A test is marked by the functions that it reaches in the tests, its fixtures among them, and by its
folder: `process` if one starts a process, `browser` or `notebook` if one opens one, `library` if it
trains with Keras, Flax and others, `measured` if it compares times. `slow` alone is given by hand.
"""

from __future__ import annotations

import fcntl
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import jax
import pytest

MARKERS: Final = {
    "process": "starts processes",
    "browser": "opens a browser",
    "notebook": "runs a notebook",
    "library": "trains with another library",
    "slow": "takes more than half a second",
    "measured": "compares times: nothing else runs meanwhile",
}
LIMIT_SECONDS: Final = 1.0
"""The processor time of an unmarked test, without its fixtures and XLA's compilations.

Twice half a second, as a busy machine takes twice as long.
"""

_COMPILATION: Final = "/jax/core/compile/backend_compile_duration"

_PACKAGES: Final = {
    **dict.fromkeys(("subprocess", "multiprocessing", "distributed", "ipyparallel"), "process"),
    **dict.fromkeys(("equinox", "flax", "haiku", "keras", "mlflow", "wandb"), "library"),
    "playwright": "browser",
    "nbclient": "notebook",
}
_FOLDERS: Final = {"integrations": "library", "notebooks": "notebook"}
_TIMES: Final = ("tests.patience", "attempts")


def mark(item: pytest.Item) -> None:
    """Adds the markers of what a test uses."""
    if not isinstance(item, pytest.Function):
        return
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    functions = [item.function, *(made.func for defs in fixtures for made in defs)]
    found = {name for function in functions for name in _uses(function)}
    found |= {marker for folder, marker in _FOLDERS.items() if folder in item.path.parts}
    for name in sorted(found):
        item.add_marker(name)


@functools.cache
def _uses(function: Any) -> frozenset[str]:
    """Returns the markers of a function, of what it calls in the tests, and of what that calls."""
    found, seen, waiting = set[str](), set[int](), [function]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        name = one.__name__ if isinstance(one, ModuleType) else getattr(one, "__module__", None)
        package = str(name).partition(".")[0]
        if package in _PACKAGES:
            found.add(_PACKAGES[package])
        elif package == "tests":
            if (name, getattr(one, "__qualname__", "")) == _TIMES:
                found.add("measured")
            waiting += _parts(one)
    return frozenset(found)


def _parts(one: Any) -> Iterator[Any]:
    """Yields what a function, a class or a module of the tests names."""
    if isinstance(one, ModuleType):
        yield from (value for value in vars(one).values() if isinstance(value, ModuleType))
    elif isinstance(one, type):
        yield from vars(one).values()
        yield from one.__mro__[1:]
    else:
        yield from (getattr(one, name, None) for name in ("__wrapped__", "__func__", "fget"))
        if isinstance(one, FunctionType):
            names = set(_names(one.__code__))
            yield from (value for name, value in one.__globals__.items() if name in names)
            yield from (cell.cell_contents for cell in one.__closure__ or ())


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def is_marked(item: pytest.Item) -> bool:
    """Returns whether a test has one of the markers."""
    return any(item.get_closest_marker(name) for name in MARKERS)


class Work:
    """The processor time of this process and of children that it has waited for.

    Compilations don't count: `make check` keeps them between runs.
    """

    def __init__(self) -> None:
        self._compiled = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, duration_secs: float, **_: str | int) -> None:
        self._compiled += duration_secs if event == _COMPILATION else 0.0

    def seconds(self) -> float:
        return sum(os.times()[:4]) - self._compiled


@contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Lets tests of several workers run together, but a measured one alone.

    Args:
      folder: A folder of all workers.
      alone: Whether no other test may run meanwhile.
    """
    with (folder / "door").open("w") as door, (folder / "room").open("w") as room:
        fcntl.flock(door, fcntl.LOCK_EX)  # who waits to be alone lets no other test begin
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield
