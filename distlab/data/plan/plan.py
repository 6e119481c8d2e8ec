"""The plan of a dataset: immutable nodes, opened for each read.

An iteration calls `open_plan`, which builds a reader for every node. Operations
that do not depend on values (shuffle, repeat, take, skip, shard, batch and the
like) over a source held in arrays run on positions; the values are fetched at
the end, a whole batch with one index operation.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from distlab.data.plan.engine import Element, Mapped, Reader
from distlab.data.plan.nest import is_leaf, leaves, map_nest
from distlab.data.plan.positions import Ascending, Indices, PositionReader, Positions
from distlab.data.plan.spec import DatasetSpec, TensorSpec, zeros

INFINITE_CARDINALITY = -1
"""`Dataset.cardinality()` of a dataset without end."""
UNKNOWN_CARDINALITY = -2
"""`Dataset.cardinality()` of a dataset whose size is unknown before it is read."""


@dataclass(frozen=True)
class Reading:
    """One pass over a plan.

    The seed and pass of each shuffle determine its order, with the numbers of the repetitions
    around it (`path`). One that peeks for specs must lose no element of an iterator.
    """

    shuffles: Mapping[Node, tuple[int, int]] = field(default_factory=dict)
    path: tuple[int, ...] = ()
    peek: bool = False

    def within(self, repetition: int) -> Reading:
        """Returns the reading of one repetition of a part of the plan."""
        return replace(self, path=(*self.path, repetition))


Opener: TypeAlias = "Callable[[Node, Reading], Reader]"
"""Opens an input: its values, or their positions."""


@dataclass(frozen=True, eq=False)
class Node(ABC):
    """One operation of a plan and the nodes it reads from."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes it reads from."""
        return ()

    def with_inputs(self, *inputs: Node) -> Node:
        """Returns this operation over other inputs; itself if it has none."""
        assert not inputs
        return self

    @property
    @abstractmethod
    def spec(self) -> Any:
        """The nest of `TensorSpec` of its elements."""

    @property
    @abstractmethod
    def cardinality(self) -> int:
        """The number of elements, or one of the two constants of this module."""

    @property
    def exact(self) -> bool:
        """True if the specs hold for every element; else they are those of the first one."""
        return all(node.exact for node in self.inputs)

    @property
    def rereadable(self) -> bool:
        """True if elements that were read can be read again, at no other place."""
        return all(node.rereadable for node in self.inputs)

    @abstractmethod
    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the elements, computed one by one."""


@dataclass(frozen=True, eq=False)
class Several(Node):
    """A node that reads several others."""

    parts: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The parts."""
        return self.parts

    def with_inputs(self, *inputs: Node) -> Node:
        """Returns this operation over other parts."""
        return replace(self, parts=inputs)


@dataclass(frozen=True, eq=False)
class Unary(Node):
    """A node with one input, whose specs and cardinality it keeps by default."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Its one input."""
        return (self.input,)

    def with_inputs(self, *inputs: Node) -> Node:
        """Returns this operation over another input."""
        return replace(self, input=inputs[0])

    @property
    def spec(self) -> Any:
        """The input's."""
        return self.input.spec

    @property
    def cardinality(self) -> int:
        """The input's."""
        return self.input.cardinality


class Source(Node):
    """A source held in arrays: any position can be fetched at any time."""

    @functools.cached_property
    def row_bytes(self) -> int:
        """The bytes of one element; a string counts as one reference."""
        return sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in leaves(self.spec))

    def split(self, positions: Indices) -> list[Any]:
        """Returns the values at positions (int64, 1-d), as a list."""
        gathered = self.gather(positions)
        if isinstance(gathered, np.ndarray):
            return list(gathered)
        if type(gathered) is tuple and gathered and all(map(is_leaf, gathered)):
            return list(zip(*gathered, strict=True))
        return [map_nest(operator.itemgetter(i), gathered) for i in range(len(positions))]

    @abstractmethod
    def gather(self, positions: Any) -> Any:
        """Returns the nest of values at positions (int64, of any shape)."""

    def read(self, reading: Reading, open_input: Opener) -> Reader:  # noqa: ARG002
        """Opens its values one by one."""
        return open_plan(self, reading)


class Order(Unary):
    """A node that does not depend on values, so that it can run on positions."""

    def rank(self, rank: int) -> int | None:
        """Returns the rank of its elements' positions for its input's; None: on values only."""
        return rank


class PlainOrder(Order):
    """An order of single examples that can be computed a whole chunk at a time."""

    @abstractmethod
    def order(self, reading: Reading, upstream: Callable[[Reading], Positions]) -> Positions:
        """Starts its positions; `upstream` starts those of its input."""


def walk(node: Node) -> Iterator[Node]:
    """Yields the nodes of a plan, each once, outputs before inputs."""
    seen: set[Node] = set()
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            yield current
            waiting.extend(reversed(current.inputs))


def open_plan(node: Node, reading: Reading) -> Reader:
    """Opens a plan for reading its values."""
    source = source_of(node)
    if source is None:
        return node.read(reading, open_plan)
    if is_plain(node):
        return PositionReader(functools.partial(start_positions, node, reading), source)
    return Mapped(_open_positions(node, reading), functools.partial(_fetch, source))


def first_value(node: Node) -> Any:
    """Returns the value of a node's first element, or zeros of its specs if it has none."""
    first = next(open_plan(node, Reading(peek=True)), None)
    return zeros(node.spec) if first is None else first.value


def spec_of_results(source: Node, spec_of_result: Callable[[Any], Any]) -> Any:
    """Returns a function's specs from its first result, with unknown first dimensions as given."""
    value = first_value(source)
    given = zip(leaves(source.spec), leaves(value), strict=True)
    unknown = {value.shape[0] for spec, value in given if spec.rank and spec.shape[0] is None}

    def forget_first(spec: TensorSpec | DatasetSpec) -> TensorSpec | DatasetSpec:
        if isinstance(spec, TensorSpec) and spec.rank and spec.shape[0] in unknown:
            return TensorSpec((None, *spec.shape[1:]), spec.dtype)
        return spec

    return map_nest(forget_first, spec_of_result(value))


def source_of(node: Node) -> Source | None:
    """Returns the source whose positions the node orders, None if it does more."""
    orders = []
    while isinstance(node, Order):
        orders.append(node)
        node = node.input
    rank: int | None = 0
    for order in reversed(orders):
        rank = None if rank is None else order.rank(rank)
    return node if isinstance(node, Source) and rank is not None else None


def is_plain(node: Node) -> bool:
    """Returns whether the node yields single examples of a source in some order."""
    while isinstance(node, PlainOrder):
        node = node.input
    return isinstance(node, Source)


def start_positions(node: Node, reading: Reading) -> Positions:
    """Starts the positions of a plain order."""
    if isinstance(node, PlainOrder):
        return node.order(reading, functools.partial(start_positions, node.input))
    size = node.cardinality
    return Ascending(sys.maxsize if size == INFINITE_CARDINALITY else size)


def _open_positions(node: Node, reading: Reading) -> Reader:
    if is_plain(node):
        return PositionReader(functools.partial(start_positions, node, reading))
    return node.read(reading, _open_positions)


def _fetch(source: Source, element: Element) -> Element:
    positions = element.value
    return Element(source.gather(positions), positions.reshape(-1))
