"""The engine underneath: Grain's datasets and iterators, carrying `Element`.

Every operation is a `Stream` that reads from streams. Grain has no type hints, so
the two base classes here declare the methods that ours implement.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import grain
import numpy as np

from distlab.errors import ContextError

State = dict[str, Any]
"""An iterator's position: dicts, lists, strings and numbers only."""


class Element(NamedTuple):
    """One element of a dataset, with the positions of its examples in the source.

    Attributes:
      value: A nest of NumPy values.
      indices: The positions of the element's examples, in order: int64, 1-d. None
        where positions are unknown.

    Example:
      >>> import distlab as dl
      >>> dataset = dl.data.Dataset.from_tensor_slices([10, 20, 30, 40]).skip(1).batch(2)
      >>> for element in dataset.elements():
      ...     print(element.value, element.indices)
      [20 30] [1 2]
      [40] [3]
    """

    value: Any
    indices: np.ndarray[Any, np.dtype[np.int64]] | None


class Reader(grain.DatasetIterator):  # type: ignore[misc]
    """One pass over a stream; its position can be saved and restored."""

    @abstractmethod
    def __next__(self) -> Element:
        """Returns the next element."""

    @abstractmethod
    def get_state(self) -> State:
        """Returns the position."""

    @abstractmethod
    def set_state(self, state: State) -> None:
        """Goes to a position that `get_state` returned."""


def require_own_threads(process: int) -> None:
    """Checks that the threads which read ahead exist: what waits for them would wait for ever."""
    if os.getpid() != process:
        raise ContextError(
            f"Process {process} reads ahead for this iterator, by threads that do not exist in its "
            f"forked child {os.getpid()}. Make the iterator in the child: iter(dataset)."
        )


class Stream(grain.IterDataset):  # type: ignore[misc]
    """A sequence of elements that can be read any number of times."""

    def __init__(self, parents: Iterable[Stream] | Stream = ()) -> None:
        super().__init__(parents if isinstance(parents, grain.IterDataset) else tuple(parents))
        _keep_tracebacks(self)

    @abstractmethod
    def __iter__(self) -> Reader:
        """Starts a pass."""


def _keep_tracebacks(stream: Stream) -> Stream:
    """Keeps Grain from rewriting the tracebacks of the user's functions.

    Grain does so in a dataset without a child, the end of a pipeline, and adds a
    note about one of its flags to every exception.
    """
    stream.has_child = True
    return stream


class Mapped(Stream):
    """The results of a function of each element.

    Grain's map does the same in 3 to 6 microseconds, this one in 0.4: it counts
    where a function is called for each example.
    """

    def __init__(self, parent: Stream, function: Callable[[Element], Element]) -> None:
        super().__init__(parent)
        self._function = function

    def __iter__(self) -> Reader:
        """Starts a pass."""
        return _MapReader(iter(self._parent), self._function)


class _MapReader(Reader):
    def __init__(self, parent: Reader, function: Callable[[Element], Element]) -> None:
        super().__init__(parent)
        self._source, self._function = parent, function

    def __next__(self) -> Element:
        return self._function(next(self._source))

    def get_state(self) -> State:
        return self._source.get_state()

    def set_state(self, state: State) -> None:
        self._source.set_state(state)


def stacked(
    stream: Stream,
    size: int,
    stack: Callable[[Sequence[Element]], Element],
    *,
    drop_remainder: bool,
) -> Stream:
    """Returns each `size` elements combined into one: Grain's own batch."""
    return _keep_tracebacks(stream.batch(size, drop_remainder=drop_remainder, batch_fn=stack))


def filtered(stream: Stream, accepts: Callable[[Element], bool]) -> Stream:
    """Returns the accepted elements: Grain's own filter.

    Its warning about filters that drop most elements is off: dropping is their
    purpose.
    """
    quiet = grain.experimental.DatasetOptions(filter_warn_threshold_ratio=None)
    return _keep_tracebacks(
        grain.experimental.WithOptionsIterDataset(stream.filter(accepts), quiet)
    )


def numbered(stream: Stream, function: Callable[[int, Element], Element]) -> Stream:
    """Returns the results of a function of number and element: Grain's map_with_index."""
    return _keep_tracebacks(stream.map_with_index(function))


def zipped(streams: Sequence[Stream], combine: Callable[[tuple[Element, ...]], Element]) -> Stream:
    """Returns the streams' elements combined, up to the shortest: Grain's own zip."""
    zip_stream = grain.experimental.ZipIterDataset(streams, strict=False)
    return _keep_tracebacks(zip_stream.map(combine))


def limited(stream: Stream, count: int) -> Stream:
    """Returns the first elements, at least one: Grain's own limit."""
    return _keep_tracebacks(grain.experimental.LimitIterDataset(stream, count))


class Empty(Stream):
    """A stream without elements."""

    def __iter__(self) -> Reader:
        """Starts a pass that has ended."""
        return _EmptyReader()


class _EmptyReader(Reader):
    def __next__(self) -> Element:
        raise StopIteration

    def get_state(self) -> State:
        return {}

    def set_state(self, state: State) -> None:
        pass
