"""Closures as they travel to workers: each function once, its arguments each time."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any, Final, NamedTuple, TypeAlias, final

from distlab.coordinator.closures import name_of
from distlab.coordinator.remote_datasets import RemoteDataset, RemoteIterator, RemoteVariable
from distlab.integrations.dask.pickling import Frames, pickled
from distlab.step.functions.identity import Identity, identity_of

MOST_FUNCTIONS: Final = 1024
"""Functions that the coordinator, and each worker, keeps."""

_MOST_ELEMENTS: Final = 1_000
_DEEPEST: Final = 8

Appended: TypeAlias = dict[int, list[Any]]
"""New elements of each captured list, by the list's number."""


class SentFunction(NamedTuple):
    """A function as bytes.

    Attributes:
      number: Its number in the session.
      frames: The bytes.
      resources: The datasets, iterators and per-worker variables that it refers to.
      identity: Keeps alive what it refers to.
      lists: The lists that it refers to.
    """

    number: int
    frames: Frames
    resources: tuple[int, ...]
    identity: Identity
    lists: CapturedLists


class Sent(NamedTuple):
    """A closure as it travels.

    Attributes:
      function: Its function.
      args: Its arguments and named arguments as bytes; None for none.
      resources: The datasets and iterators that these refer to.
    """

    function: SentFunction
    args: Frames | None
    resources: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the arguments."""
        return sum(memoryview(frame).nbytes for frame in self.args or ())


@final
class ClosuresSent:
    """The functions and datasets that a coordinator has pickled for its workers.

    A function is pickled when it is new, by its identity. So a worker has one object for it, and
    compiles its steps once.

    Attributes:
      resources: The datasets, iterators and per-worker variables as bytes, by number.
    """

    def __init__(self, session: str) -> None:
        self._session = session
        self._numbers = itertools.count()
        self._functions: OrderedDict[Any, SentFunction] = OrderedDict()
        self.resources: dict[int, Frames] = {}

    def closure(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Sent:
        """Returns a closure as it travels."""
        function = self._function(fn)
        if not args and not kwargs:
            return Sent(function, None, ())
        frames, needed = pickled(self._session, f"An argument of {name_of(fn)}", (args, kwargs))
        return Sent(function, frames, self._needed(needed))

    def _function(self, fn: Callable[..., Any]) -> SentFunction:
        identity = identity_of(fn)
        known = self._functions.get(identity.key)
        if known is not None:
            self._functions.move_to_end(identity.key)
            return known
        frames, needed = pickled(self._session, name_of(fn), fn)
        number, resources = next(self._numbers), self._needed(needed)
        made = SentFunction(number, frames, resources, identity, CapturedLists(fn))
        self._functions[identity.key] = made
        if len(self._functions) > MOST_FUNCTIONS:
            self._functions.popitem(last=False)
        return made

    def _needed(self, resources: list[Any]) -> tuple[int, ...]:
        """Pickles the sources of datasets, iterators and variables, and returns their numbers."""
        numbers: list[int] = []
        for resource in resources:
            numbers.append(resource.number)
            if isinstance(resource, RemoteIterator):
                numbers += self._needed([resource.dataset])
            if resource.number not in self.resources:
                self.resources[resource.number] = self._recipe(resource)
        return tuple(numbers)

    def _recipe(self, resource: RemoteDataset | RemoteIterator | RemoteVariable) -> Frames:
        recipe: tuple[str, Any]
        match resource:
            case RemoteDataset():
                recipe = "dataset", resource.source
            case RemoteIterator():
                recipe = "iterator", resource.dataset
            case RemoteVariable():
                recipe = "variable", (resource.about, resource.value)
        frames, needed = pickled(self._session, f"A per-worker {recipe[0]}", recipe)
        self._needed([other for other in needed if other is not resource])
        return frames


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
