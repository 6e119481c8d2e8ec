"""Closures as they travel to workers: each function once, its arguments each time."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any, Final, NamedTuple, TypeAlias, final

from distlab.coordinator.closures import name_of
from distlab.coordinator.per_worker import numbers
from distlab.integrations.dask.pickling import Frames, pickled
from distlab.step.functions.identity import Identity, identity_of

MOST_FUNCTIONS: Final = 1024
"""Functions that the coordinator, and each worker, keeps: the newest ones."""

_MOST_ELEMENTS: Final = 1_000
_DEEPEST: Final = 8

Appended: TypeAlias = dict[int, list[Any]]
"""New elements of each captured list, by the list's number."""


class SentFunction(NamedTuple):
    """A function as bytes: its number and frames; its identity keeps alive what it refers to."""

    number: int
    frames: Frames
    identity: Identity
    lists: CapturedLists


class Sent(NamedTuple):
    """A closure as it travels: its function, and its arguments as bytes, None for none."""

    function: SentFunction
    args: Frames | None

    @property
    def nbytes(self) -> int:
        """Bytes of the arguments."""
        return sum(memoryview(frame).nbytes for frame in self.args or ())


@final
class ClosuresSent:
    """The functions and datasets that a coordinator has pickled for its workers.

    A function is pickled when it is new, by its identity. So a worker has one object for it, and
    compiles its steps once.
    """

    def __init__(self, session: str) -> None:
        self._session = session
        self._functions: dict[Any, SentFunction] = {}
        self._recipes: dict[int, Frames] = {}

    def closure(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Sent:
        """Returns a closure as it travels."""
        function = self._function(fn)
        if not args and not kwargs:
            return Sent(function, None)
        what = f"An argument of {name_of(fn)}"
        return Sent(function, pickled(self._session, what, (args, kwargs), self._recipes))

    def recipe(self, function: SentFunction, number: int) -> Frames:
        """Returns how a worker makes a function, or one of the datasets."""
        return function.frames if number == function.number else self._recipes[number]

    def _function(self, fn: Callable[..., Any]) -> SentFunction:
        identity = identity_of(fn)
        known = self._functions.get(identity.key)
        if known is not None:
            return known
        frames = pickled(self._session, name_of(fn), (captured, fn), self._recipes)
        made = SentFunction(next(numbers), frames, identity, CapturedLists(fn))
        self._functions[identity.key] = made
        if len(self._functions) > MOST_FUNCTIONS:
            del self._functions[next(iter(self._functions))]
        return made


@final
class CapturedLists:
    """The lists that a function refers to, directly or through functions and containers.

    They have the same order in each process that has the function. What a closure appends in a
    worker is appended in the coordinator, as what Python did while TensorFlow traced stays there.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._lists: list[list[Any]] = []
        self._find(fn, set(), 0)
        self._lengths: list[int] = []

    def remember(self) -> None:
        """Notes their lengths."""
        self._lengths = [len(one) for one in self._lists]

    def appended(self) -> Appended:
        """Takes out what was appended since `remember`, and returns it."""
        found: Appended = {}
        for number, (one, length) in enumerate(zip(self._lists, self._lengths, strict=True)):
            if len(one) > length:
                found[number] = one[length:]
                del one[length:]
        return found

    def extend(self, appended: Appended) -> None:
        """Appends what a closure appended in another process."""
        for number, elements in appended.items():
            self._lists[number].extend(elements)

    def _find(self, value: Any, seen: set[int], depth: int) -> None:
        if depth > _DEEPEST or id(value) in seen:
            return
        seen.add(id(value))
        if type(value) is list:
            self._lists.append(value)
        for part in _parts(value):
            self._find(part, seen, depth + 1)


def captured(fn: Callable[..., Any]) -> tuple[Callable[..., Any], CapturedLists]:
    """Returns a function with the lists that it refers to, as a worker keeps it."""
    return fn, CapturedLists(fn)


def _parts(value: Any) -> Iterator[Any]:
    """Returns the values that a function or a container refers to."""
    match value:
        case MethodType():
            yield from (value.__func__, value.__self__)
        case FunctionType():
            yield from value.__defaults__ or ()
            for cell in value.__closure__ or ():
                with contextlib.suppress(ValueError):  # an empty cell
                    yield cell.cell_contents
            names = value.__code__.co_names
            yield from (value.__globals__[name] for name in names if name in value.__globals__)
        case functools.partial():
            yield from (value.func, *value.args, *value.keywords.values())
        case list() | tuple() if len(value) <= _MOST_ELEMENTS:
            yield from value
        case dict() if len(value) <= _MOST_ELEMENTS:
            yield from value.values()
