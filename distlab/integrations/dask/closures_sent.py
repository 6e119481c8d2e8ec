"""Closures as they travel to workers: each function once, its arguments each time."""

from __future__ import annotations

import itertools
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple, final

from distlab.coordinator.closures import name_of
from distlab.coordinator.remote_datasets import RemoteDataset, RemoteIterator, RemoteVariable
from distlab.errors import CapturedStateWarning
from distlab.integrations.dask.captured import (
    Appended,
    CapturedContainers,
    outer_names_assigned,
)
from distlab.integrations.dask.messages import Frames
from distlab.integrations.dask.pickling import pickled
from distlab.step.functions.identity import Identity, identity_of

_MOST_FUNCTIONS: Final = 1024


class SentFunction(NamedTuple):
    """A function as bytes.

    Attributes:
      number: Its number in the session.
      frames: The bytes.
      resources: The datasets, iterators and per-worker variables that it refers to.
      identity: What it is; keeps alive what it refers to.
      fn: The function.
      captured: The lists and dictionaries that it refers to.
    """

    number: int
    frames: Frames
    resources: tuple[int, ...]
    identity: Identity
    fn: Callable[..., Any]
    captured: CapturedContainers


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


@final
class ClosuresSent:
    """What a coordinator has pickled for its workers.

    A function is pickled when it is new, by what it is (`step.function_identity`). So a worker
    has one object for it, and compiles its steps once.

    Args:
      session: The session's name.
    """

    def __init__(self, session: str) -> None:
        self._session = session
        self._numbers = itertools.count()
        self._functions: OrderedDict[Any, SentFunction] = OrderedDict()
        self._told: set[int] = set()
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

    def kept(self) -> set[int]:
        """Returns the numbers of the functions that need not be pickled anew."""
        return {function.number for function in self._functions.values()}

    def _function(self, fn: Callable[..., Any]) -> SentFunction:
        identity = identity_of(fn)
        known = self._functions.get(identity.key)
        if known is not None:
            self._functions.move_to_end(identity.key)
            return known
        frames, needed = pickled(self._session, name_of(fn), fn)
        assigned = outer_names_assigned(fn)
        if assigned:
            warnings.warn(
                f"{name_of(fn)} assigns {', '.join(assigned)}, which is outside of it. It runs in "
                "another process, where this changes a copy. Return what it computes, or use a "
                "distlab.Variable.",
                CapturedStateWarning,
                stacklevel=4,
            )
        made = SentFunction(
            next(self._numbers),
            frames,
            self._needed(needed),
            identity,
            fn,
            CapturedContainers(fn),
        )
        self._keep(identity, made)
        return made

    def note(self, function: SentFunction, appended: Appended, others: list[str]) -> str | None:
        """Does to the coordinator's lists what a closure did to a worker's copies."""
        if appended:
            function.captured.extend(appended)
            self._keep(identity_of(function.fn), function)  # it is still the same function
        if not others or function.number in self._told:
            return None
        self._told.add(function.number)
        return (
            f"{name_of(function.fn)} changes {'; '.join(others)}, which it did not make. It runs "
            "in another process, where this changes a copy; only what it appends to a list "
            "arrives here. Return what it computes, or keep it in a distlab.Variable."
        )

    def _keep(self, identity: Identity, function: SentFunction) -> None:
        self._functions[identity.key] = function._replace(identity=identity)
        if len(self._functions) > _MOST_FUNCTIONS:
            self._functions.popitem(last=False)

    def _needed(self, resources: list[Any]) -> tuple[int, ...]:
        """Pickles what datasets, iterators and variables are made of, and returns their numbers."""
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
                what, recipe = "A per-worker dataset", ("dataset", resource.source)
            case RemoteIterator():
                what, recipe = "A per-worker iterator", ("iterator", resource.dataset)
            case RemoteVariable():
                what, recipe = (
                    "A per-worker variable",
                    ("variable", (resource.about, resource.value)),
                )
        frames, needed = pickled(self._session, what, recipe)
        self._needed([other for other in needed if other is not resource])
        return frames
