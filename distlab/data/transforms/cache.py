"""cache: the elements of the first iteration, kept in memory or in a file for the later ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from distlab.data.plan.engine import Element, Reader, State
from distlab.data.plan.memory import own
from distlab.data.plan.nest import map_nest
from distlab.data.plan.plan import (
    Node,
    Opener,
    PlainOrder,
    Reading,
    Unary,
    is_plain,
    source_of,
    walk,
)
from distlab.data.plan.positions import Positions
from distlab.data.plan.seeded import Seeded
from distlab.data.transforms.cache_file import CacheFile, Recording
from distlab.errors import InvalidArgumentError

Seeds = tuple[int, ...]
"""The seeds of the random choices in a cache's input, which decide what it keeps."""


Kept = tuple[Seeds, Iterator[Element]]
"""The seeds with which kept elements were made, and a pass over them."""


class _MemoryRecorder:
    """Receives the elements of a first iteration; they are kept once it has ended."""

    def __init__(self, kept: list[tuple[Seeds, list[Element]]], seeds: Seeds) -> None:
        self._kept, self._seeds = kept, seeds
        self._elements: list[Element] = []

    def add(self, element: Element) -> None:
        self._elements.append(element)

    def finish(self) -> None:
        self._kept[:] = [(self._seeds, self._elements)]

    def abandon(self) -> None:
        self._elements = []


Recorder = _MemoryRecorder | Recording


def in_memory(plan: Node) -> Node:
    """Returns a plan whose later iterations have the elements of the first one.

    Elements that arrays in memory hold anyway are not kept twice.
    """
    steady = not any(isinstance(node, Seeded) and node.reshuffle for node in walk(plan))
    if steady and source_of(plan) is not None:
        return plan
    return FixedOrder(plan) if is_plain(plan) else MemoryCache(plan)


@dataclass(frozen=True, eq=False)
class FixedOrder(PlainOrder):
    """An order of single examples that is the same in each iteration."""

    def order(self, reading: Reading, upstream: Callable[[Reading], Positions]) -> Positions:
        """Starts the positions of the first pass."""
        return upstream(first_pass(self.input, reading))

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the examples in the order of the first pass."""
        return open_input(self.input, first_pass(self.input, reading))


@dataclass(frozen=True, eq=False)
class MemoryCache(Unary):
    """Keeps the elements in memory once an iteration has reached the end."""

    _kept: list[tuple[Seeds, list[Element]]] = field(default_factory=list, init=False, repr=False)

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the elements, those that are kept if there are."""
        if reading.peek and not self._kept:
            return open_input(self.input, reading)
        source = functools.partial(_open_source, self.input, reading, open_input)
        return _CacheReader(source, self._open, self._recorder)

    def _open(self, wanted: Seeds | None) -> Kept | None:
        for seeds, elements in self._kept:
            if wanted is None or seeds == wanted:
                return seeds, iter(elements)
        return None

    def _recorder(self, seeds: Seeds) -> Recorder:
        return _MemoryRecorder(self._kept, seeds)


@dataclass(frozen=True, eq=False)
class FileCache(Unary):
    """Keeps the elements in files, once an iteration has reached the end.

    Attributes:
      path: What the files' names begin with.
    """

    path: str

    @property
    def file(self) -> CacheFile:
        """The files."""
        return CacheFile(self.path)

    @functools.cached_property
    def spec(self) -> Any:
        """The input's; those in the files where the input's need a read of its source."""
        kept = self.file.spec() if self.file.exists() and not self.input.exact else None
        return self.input.spec if kept is None else kept

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the elements, those in the files if there are."""
        if reading.peek and not self.file.exists():
            return open_input(self.input, reading)
        source = functools.partial(_open_source, self.input, reading, open_input)
        return _CacheReader(source, self._open, self._recorder)

    def for_part(self, part: str) -> FileCache:
        """Returns the cache of one worker's part, in files of its own."""
        return replace(self, path=f"{self.path}.{part}")

    def _open(self, wanted: Seeds | None) -> Kept | None:
        if not self.file.exists():
            return None
        index = self.file.index()
        if wanted is not None and tuple(index.seeds) != wanted:
            raise InvalidArgumentError(
                f"The position belongs to a cache of other elements than {self.path!r} has: they "
                "were shuffled with other seeds. Set the seeds of shuffles before cache, or "
                "restore where the file is the same."
            )
        return tuple(index.seeds), self.file.elements(self.spec)

    def _recorder(self, seeds: Seeds) -> Recorder:
        return Recording(self.file, self.spec, seeds)


def first_pass(plan: Node, reading: Reading, seeds: Seeds | None = None) -> Reading:
    """Returns the reading of a plan's first iteration, whichever iteration this one is."""
    if seeds is None:
        seeds = seeds_of(plan, reading)
    nodes = (node for node in walk(plan) if isinstance(node, Seeded))
    return Reading({node: (seed, 0) for node, seed in zip(nodes, seeds, strict=True)})


def seeds_of(plan: Node, reading: Reading) -> Seeds:
    """Returns the seeds of a plan in a reading."""
    nodes = [node for node in walk(plan) if isinstance(node, Seeded)]
    return tuple(reading.shuffles.get(node, (node.seed, 0))[0] for node in nodes)


def _open_source(
    plan: Node, reading: Reading, open_input: Opener, seeds: Seeds | None
) -> tuple[Seeds, Reader]:
    chosen = seeds_of(plan, reading) if seeds is None else seeds
    return chosen, open_input(plan, first_pass(plan, reading, chosen))


class _CacheReader(Reader):
    """Reads what is kept; without it, reads the source and keeps that.

    The position has the seeds, so that a restore finds the same elements, or makes
    them again.
    """

    def __init__(
        self,
        open_source: Callable[[Seeds | None], tuple[Seeds, Reader]],
        open_kept: Callable[[Seeds | None], Kept | None],
        record: Callable[[Seeds], Recorder],
    ) -> None:
        super().__init__()
        self._open_source, self._open_kept, self._record = open_source, open_kept, record
        self._seeds: Seeds | None = None
        self._kept: Iterator[Element] | None = None
        self._source: Reader | None = None
        self._recorder: Recorder | None = None
        self._given = 0

    def __next__(self) -> Element:
        if self._kept is None and self._source is None:
            self._begin(None)
        element = self._next_of_source() if self._kept is None else next(self._kept)
        self._given += 1
        return element

    def get_state(self) -> State:
        seeds = None if self._seeds is None else list(self._seeds)
        return {"given": self._given, "seeds": seeds}

    def set_state(self, state: State) -> None:
        self._end()
        self._given = 0
        if state["seeds"] is not None:
            self._begin(tuple(state["seeds"]))
        while self._given < state["given"]:
            next(self)

    def close(self) -> None:
        """Ends the reading; what was not read to the end is not kept."""
        self._end()

    def _begin(self, wanted: Seeds | None) -> None:
        kept = self._open_kept(wanted)
        if kept is not None:
            self._seeds, self._kept = kept
            return
        self._seeds, self._source = self._open_source(wanted)
        self._recorder = self._record(self._seeds)

    def _next_of_source(self) -> Element:
        assert self._source is not None
        try:
            element = next(self._source)
        except StopIteration:
            if self._recorder is not None:
                recorder, self._recorder = self._recorder, None
                recorder.finish()
            raise
        element = element._replace(value=map_nest(own, element.value))
        if self._recorder is not None:
            self._recorder.add(element)
        return element

    def _end(self) -> None:
        if self._recorder is not None:
            self._recorder.abandon()
        for open_one in (self._source, self._kept):
            close = getattr(open_one, "close", None)
            if callable(close):  # an iterator over a list has none
                close()
        self._kept = self._source = self._recorder = self._seeds = None
