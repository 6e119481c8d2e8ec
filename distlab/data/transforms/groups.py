"""Elements collected into datasets of their own: window, group_by_window, buckets of lengths."""

from __future__ import annotations

import bisect
import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.data.plan.engine import Element, Reader, Replayed, State
from distlab.data.plan.nest import call_with, is_leaf, leaves, map_nest
from distlab.data.plan.plan import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Node,
    Opener,
    Reading,
    Unary,
    first_value,
    open_plan,
)
from distlab.data.plan.spec import DatasetSpec
from distlab.data.transforms.batch import Batch
from distlab.data.transforms.padded_batch import PaddedBatch, shapes_like
from distlab.errors import InvalidArgumentError, StructureError
from distlab.text.shown import shown


@dataclass(frozen=True, eq=False)
class Listed(Node):
    """A list of elements of a node, or of one component of them."""

    elements: Sequence[Element]
    like: Node
    component: int | None = None

    @property
    def spec(self) -> Any:
        """The specs of `like`, or of one component."""
        spec = self.like.spec
        return spec if self.component is None else list(leaves(spec))[self.component]

    @property
    def cardinality(self) -> int:
        """The length of the list."""
        return len(self.elements)

    @property
    def exact(self) -> bool:
        """As those of `like`."""
        return self.like.exact

    def read(self, reading: Reading, open_input: Opener) -> Reader:  # noqa: ARG002
        """Opens the elements."""
        return Replayed(lambda: iter(self.elements))


@dataclass(frozen=True, eq=False)
class Window(Unary):
    """Every `shift` elements, a dataset of `size` elements that are `stride` apart."""

    size: int
    shift: int
    stride: int
    drop_remainder: bool
    make_dataset: Callable[[Node], Any]

    @property
    def span(self) -> int:
        """The number of elements from the first to the last of a full window."""
        return (self.size - 1) * self.stride + 1

    @functools.cached_property
    def spec(self) -> Any:
        """The input's structure, with a dataset at each leaf."""
        return map_nest(DatasetSpec, self.input.spec)

    @property
    def cardinality(self) -> int:
        """The number of windows."""
        size = self.input.cardinality
        if size < 0:
            return size
        if self.drop_remainder:
            return max(0, (size - self.span) // self.shift + 1)
        return -(-size // self.shift)

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the windows."""
        return _WindowReader(open_input(self.input, reading), self)

    def window(self, elements: list[Element]) -> Element:
        """Returns a window: the structure of its elements, with a dataset at each leaf."""
        if is_leaf(elements[0].value):
            return Element(self.make_dataset(Listed(elements, self.input)), None)
        columns = zip(*(leaves(element.value) for element in elements), strict=True)
        parts = (
            [Element(value, each.indices) for value, each in zip(column, elements, strict=True)]
            for column in columns
        )
        number = itertools.count()
        value = map_nest(
            lambda _: self.make_dataset(Listed(next(parts), self.input, next(number))),
            elements[0].value,
        )
        return Element(value, None)


class _WindowReader(Reader):
    """Keeps elements from the next window on; its position is before the first of them."""

    def __init__(self, parent: Reader, node: Window) -> None:
        super().__init__(parent)
        self._node = node
        self._begin(parent.get_state(), 0)

    def __next__(self) -> Element:
        node, buffer = self._node, self._buffer
        self._fill()
        if not buffer or (node.drop_remainder and len(buffer) < node.span):
            raise StopIteration
        window = node.window(list(itertools.islice(buffer, 0, node.span, node.stride)))
        kept = min(node.shift, len(buffer))
        for _ in range(kept):
            buffer.popleft()
        self._starts.popleft()
        self._to_skip = node.shift - kept
        return window

    def get_state(self) -> State:
        if self._starts:
            return {"before": self._starts[0], "to_skip": 0}
        return {"before": self._parent.get_state(), "to_skip": self._to_skip}

    def set_state(self, state: State) -> None:
        self._parent.set_state(state["before"])
        self._begin(state["before"], state["to_skip"])

    def _begin(self, before: State, to_skip: int) -> None:
        self._buffer: deque[Element] = deque()
        self._to_skip = to_skip
        # The positions of elements at which windows begin, from the buffer's first on.
        self._starts: deque[State] = deque([] if to_skip else [before])
        self._ended = False

    def _fill(self) -> None:
        """Reads on until the buffer holds a full window, or the input ends."""
        while self._to_skip and not self._ended:
            self._ended = next(self._parent, None) is None
            self._to_skip -= 1
        while len(self._buffer) < self._node.span and not self._ended:
            if not len(self._buffer) % self._node.shift:
                begin = len(self._buffer) // self._node.shift
                if begin == len(self._starts):
                    self._starts.append(self._parent.get_state())
            element = next(self._parent, None)
            if element is None:
                self._ended = True
            else:
                self._buffer.append(element)


@dataclass(frozen=True, eq=False)
class GroupByWindow(Unary):
    """The elements of the datasets that `reduce` makes of windows of elements with one key."""

    key: Callable[..., Any]
    reduce: Callable[[Any, Any], Node]
    window_size: Callable[[Any], Any]
    make_dataset: Callable[[Node], Any]

    @functools.cached_property
    def spec(self) -> Any:
        """The specs of the dataset for the input's first element, or for zeros."""
        return self.example.spec

    @functools.cached_property
    def example(self) -> Node:
        """The plan for a window of the input's first element, or of zeros without one."""
        element = Element(first_value(self.input), None)
        return self._reduced(self._key_of(element), [element])

    @property
    def cardinality(self) -> int:
        """Infinite if the input's is, else unknown."""
        endless = self.input.cardinality == INFINITE_CARDINALITY
        return INFINITE_CARDINALITY if endless else UNKNOWN_CARDINALITY

    @property
    def exact(self) -> bool:
        """No: the function decides."""
        return False

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the elements of all datasets."""
        return Replayed(lambda: self._elements(open_input(self.input, reading), reading))

    def _elements(self, reader: Reader, reading: Reading) -> Iterator[Element]:
        for number, (key, window) in enumerate(self._windows(reader)):
            with closing(open_plan(self._reduced(key, window), reading.within(number))) as part:
                yield from part

    def _windows(self, reader: Reader) -> Iterator[tuple[np.int64, list[Element]]]:
        groups: dict[np.int64, tuple[int, list[Element]]] = {}
        with closing(reader):
            for element in reader:
                key = self._key_of(element)
                if key not in groups:
                    groups[key] = (self._size_of(key), [])
                size, window = groups[key]
                window.append(element)
                if len(window) == size:
                    del groups[key]
                    yield key, window
        for key in sorted(groups):
            yield key, groups[key][1]

    def _key_of(self, element: Element) -> np.int64:
        return _integer("key_func of group_by_window", call_with(self.key, element.value))

    def _size_of(self, key: np.int64) -> int:
        size = int(_integer("window_size_func of group_by_window", self.window_size(key)))
        if size < 1:
            raise InvalidArgumentError(
                f"The window size of group_by_window must be at least 1, got {size} for key {key}"
            )
        return size

    def _reduced(self, key: np.int64, window: list[Element]) -> Node:
        return self.reduce(key, self.make_dataset(Listed(window, self.input)))


def _integer(name: str, value: Any) -> np.int64:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "iub":
        raise StructureError(
            f"{name} must return one integer, got {shown(value)}. Convert it with np.int64."
        )
    return np.int64(array.item())


@dataclass(frozen=True)
class Buckets:
    """Buckets of lengths, for the functions of a `GroupByWindow`."""

    length_of: Callable[..., Any]
    boundaries: list[int]
    sizes: list[int]
    padded_shapes: Any
    padding_values: Any
    to_boundary: bool
    no_padding: bool
    drop_remainder: bool

    def bucket_of(self, *parts: Any) -> int:
        """Returns the number of an element's bucket."""
        name = "element_length_func of bucket_by_sequence_length"
        return bisect.bisect_right(self.boundaries, int(_integer(name, self.length_of(*parts))))

    def size_of(self, bucket: Any) -> int:
        """Returns the batch size of a bucket."""
        return self.sizes[int(bucket)]

    def batched(self, bucket: Any, window: Any) -> Node:
        """Returns the plan of a bucket's batch."""
        size, plan = self.size_of(bucket), window.plan
        if self.no_padding:
            return Batch(plan, size, self.drop_remainder)
        shapes = self.padded_shapes
        if self.to_boundary:
            shapes = self._bounded_shapes(int(bucket), plan)
        return PaddedBatch(plan, size, self.drop_remainder, shapes, self.padding_values)

    def _bounded_shapes(self, bucket: int, plan: Node) -> Any:
        """Returns the padded shapes with the bucket's longest length for unknown sizes."""
        if bucket == len(self.boundaries):
            raise InvalidArgumentError(
                "With pad_to_bucket_boundary, elements of bucket_by_sequence_length must be "
                f"shorter than the last boundary, {self.boundaries[-1] if bucket else None}, and "
                "one is not. Add a boundary, or filter such elements."
            )
        if self.padded_shapes is None and not plan.exact:
            raise InvalidArgumentError(
                "With pad_to_bucket_boundary, bucket_by_sequence_length needs to know the "
                "dimensions that vary, and the results of a function have no fixed shape. Give "
                "padded_shapes, with None for those."
            )
        spec, longest = plan.spec, self.boundaries[bucket] - 1
        shapes = iter(
            [each.shape for each in leaves(spec)]
            if self.padded_shapes is None
            else shapes_like(spec, self.padded_shapes)
        )
        return map_nest(
            lambda _: [longest if size is None else size for size in next(shapes)], spec
        )
