"""The engine underneath: Grain's datasets and iterators, carrying `Element`.

Every operation reads from a `Stream` and is one. Grain has no types of its own,
so the two base classes here say once what ours must offer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import grain
import numpy as np

State = dict[str, Any]
"""An iterator's position: dicts, lists, strings and numbers only."""


class Element(NamedTuple):
    """One element of a dataset and where it comes from.

    Attributes:
      value: nest of NumPy values.
      indices: positions in the source of the examples in this element, in
        order: int64, 1-d. None where positions are not known.
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
        """Goes to a position that `get_state` gave."""


class Stream(grain.IterDataset):  # type: ignore[misc]
    """Something to read elements from, any number of times."""

    def __init__(self, parents: Iterable[Stream] | Stream = ()) -> None:
        super().__init__(parents if isinstance(parents, grain.IterDataset) else tuple(parents))

    @abstractmethod
    def __iter__(self) -> Reader:
        """Starts a pass."""


def mapped(stream: Stream, function: Callable[[Element], Element]) -> Stream:
    """Returns the elements changed by a function: Grain's own map."""
    result: Stream = stream.map(function)
    return result


def stacked(
    stream: Stream,
    size: int,
    stack: Callable[[Sequence[Element]], Element],
    *,
    drop_remainder: bool,
) -> Stream:
    """Returns `size` elements at a time made into one: Grain's own batch."""
    result: Stream = stream.batch(size, drop_remainder=drop_remainder, batch_fn=stack)
    return result


def filtered(stream: Stream, accepts: Callable[[Element], bool]) -> Stream:
    """Returns the elements that are accepted: Grain's own filter.

    Its warning about filters that refuse most elements is off: refusing is what
    they are for.
    """
    quiet = grain.experimental.DatasetOptions(filter_warn_threshold_ratio=None)
    result: Stream = grain.experimental.WithOptionsIterDataset(stream.filter(accepts), quiet)
    return result


def numbered(stream: Stream, function: Callable[[int, Element], Element]) -> Stream:
    """Returns the elements changed by a function of their number: Grain's map_with_index."""
    result: Stream = stream.map_with_index(function)
    return result


def zipped(streams: Sequence[Stream], combine: Callable[[tuple[Element, ...]], Element]) -> Stream:
    """Returns elements of all streams made into one, up to the shortest: Grain's own zip."""
    result: Stream = grain.experimental.ZipIterDataset(streams, strict=False).map(combine)
    return result


def limited(stream: Stream, count: int) -> Stream:
    """Returns the first elements, at least one: Grain's own limit."""
    result: Stream = grain.experimental.LimitIterDataset(stream, count)
    return result


class Empty(Stream):
    """Has no elements."""

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
