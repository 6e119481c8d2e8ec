"""cache: the elements of the first iteration, kept in memory or in a file for the later ones."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from distlab.data.plan.engine import Element, Reader, Replayed
from distlab.data.plan.iterator import Elements
from distlab.data.plan.memory import own
from distlab.data.plan.nest import map_nest
from distlab.data.plan.plan import Node, Opener, Reading, Unary, source_of, walk
from distlab.data.plan.seeded import Seeded
from distlab.data.transforms.cache_file import CacheFile, Recording

_Passes = list[tuple[int, int]]
"""The seeds and passes of the shuffles before a cache, which decide what it keeps."""


class _InMemory:
    """The elements of a first iteration; they count once it has ended."""

    def __init__(self, kept: list[tuple[_Passes, list[Element]]], passes: _Passes) -> None:
        self._kept, self._passes = kept, passes
        self._elements: list[Element] = []
        self.add = self._elements.append
        self.abandon = self._elements.clear

    def finish(self) -> None:
        self._kept[:] = [(self._passes, self._elements)]


def recorded(source: Reader | Elements, recorder: _InMemory | Recording) -> Iterator[Element]:
    """Yields elements that count as kept once all were read."""
    try:
        for element in source:
            own_element = element._replace(value=map_nest(own, element.value))
            recorder.add(own_element)
            yield own_element
        recorder.finish()
    except BaseException:  # also where it is closed before the end
        recorder.abandon()
        raise


def in_memory(plan: Node) -> Node:
    """Returns a plan with the elements of its first iteration; itself if arrays hold them."""
    steady = not any(isinstance(node, Seeded) and node.reshuffle for node in walk(plan))
    return plan if steady and source_of(plan) is not None else MemoryCache(plan)


@dataclass(frozen=True, eq=False)
class _Cache(Unary):
    """Reads what is kept; without it, reads the first pass of its input and keeps that."""

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the elements, those that are kept if there are."""
        nodes = [node for node in walk(self.input) if isinstance(node, Seeded)]
        passes = [(reading.shuffles.get(node, (node.seed, 0))[0], 0) for node in nodes]
        first = Reading(dict(zip(nodes, passes, strict=True)))
        if reading.peek and self.kept(passes) is None:
            return open_input(self.input, reading)
        return Replayed(lambda: self._elements(passes, lambda: open_input(self.input, first)))

    def _elements(self, passes: _Passes, open_source: Callable[[], Reader]) -> Iterator[Element]:
        kept = self.kept(passes)
        if kept is not None:
            yield from kept
            return
        with closing(open_source()) as source:
            yield from recorded(source, self.recorder(passes))

    @abstractmethod
    def kept(self, passes: _Passes) -> Iterator[Element] | None:
        """Starts a pass over the elements that are kept; None without any."""

    @abstractmethod
    def recorder(self, passes: _Passes) -> _InMemory | Recording:
        """Returns what keeps the elements."""


@dataclass(frozen=True, eq=False)
class MemoryCache(_Cache):
    """Keeps the elements in memory once an iteration has reached the end."""

    _kept: list[tuple[_Passes, list[Element]]] = field(default_factory=list, init=False, repr=False)

    def kept(self, passes: _Passes) -> Iterator[Element] | None:
        """Starts a pass, unless a restored position is of another shuffle."""
        return next((iter(kept) for of, kept in self._kept if of == passes), None)

    def recorder(self, passes: _Passes) -> _InMemory:
        """Returns an empty list that becomes what is kept."""
        return _InMemory(self._kept, passes)


@dataclass(frozen=True, eq=False)
class FileCache(_Cache):
    """Keeps the elements in files whose names begin with `path`, once an iteration has ended."""

    path: str

    @property
    def file(self) -> CacheFile:
        """The files."""
        return CacheFile(self.path)

    @functools.cached_property
    def spec(self) -> Any:
        """The input's; those in the files where the input's need a read of its source."""
        kept = self.file.exists() and not self.input.exact
        return self.file.spec() if kept else self.input.spec

    def for_part(self, part: str) -> FileCache:
        """Returns the cache of one worker's part, in files of its own."""
        return replace(self, path=f"{self.path}.{part}")

    def kept(self, passes: _Passes) -> Iterator[Element] | None:
        """Starts a pass over the files, whichever shuffle made them."""
        del passes
        return self.file.elements(self.spec) if self.file.exists() else None

    def recorder(self, passes: _Passes) -> Recording:
        """Returns a file to be written."""
        del passes
        return Recording(self.file, self.input.spec if self.input.exact else None)
