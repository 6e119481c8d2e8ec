"""window: consecutive elements as datasets of their own."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distlab.data.plan.engine import Element, Reader, State, Stream
from distlab.data.plan.listed import Listed
from distlab.data.plan.nest import is_leaf, leaves, map_nest
from distlab.data.plan.plan import Node, Opener, Reading, Unary
from distlab.data.plan.spec import DatasetSpec


@dataclass(frozen=True, eq=False)
class Window(Unary):
    """Every `shift` elements, a dataset of `size` elements that are `stride` apart.

    Attributes:
      make_dataset: Makes the dataset of a plan.
    """

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
        number = itertools.count()
        return map_nest(lambda spec: self._dataset_spec(spec, next(number)), self.input.spec)

    @property
    def cardinality(self) -> int:
        """The number of windows."""
        size = self.input.cardinality
        if size < 0:
            return size
        if self.drop_remainder:
            return max(0, (size - self.span) // self.shift + 1)
        return -(-size // self.shift)

    @property
    def extent(self) -> int | None:
        """None: windows have no positions of their own."""
        return None

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the windows."""
        return _WindowStream(open_input(self.input, reading), self)

    def _dataset_spec(self, spec: Any, component: int) -> DatasetSpec:
        of = None if is_leaf(self.input.spec) else component
        return DatasetSpec(spec, lambda: self.make_dataset(Listed([], self.input, of)))

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


class _WindowStream(Stream):
    def __init__(self, parent: Stream, node: Window) -> None:
        super().__init__(parent)
        self._node = node

    def __iter__(self) -> Reader:
        return _WindowReader(iter(self._parent), self._node)


class _WindowReader(Reader):
    """Keeps the elements from the beginning of the next window on.

    The position is that before the next window's first element, so that a restore
    reads one window again.
    """

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
            element: Element | None = next(self._parent, None)
            if element is None:
                self._ended = True
            else:
                self._buffer.append(element)
