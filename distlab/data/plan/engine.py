"""Readers: one pass over elements each, with a position to save and restore."""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from distlab.errors import ContextError, OneShotError

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


class Pass(ABC):
    """An iteration with a position: the attributes in `FIELDS`, and its parents' positions."""

    FIELDS: ClassVar[tuple[str, ...]] = ()

    _parents: tuple[Pass, ...] = ()

    def __iter__(self) -> Self:
        """Returns itself."""
        return self

    @abstractmethod
    def __next__(self) -> Any:
        """Returns the next item; raises `StopIteration` at the end."""

    def get_state(self) -> State:
        """Returns the position."""
        state: State = {name.lstrip("_"): getattr(self, name) for name in self.FIELDS}
        return {**state, "parents": [parent.get_state() for parent in self._parents]}

    def set_state(self, state: State) -> None:
        """Goes to a position that `get_state` returned."""
        for name in self.FIELDS:
            setattr(self, name, state[name.lstrip("_")])
        for parent, position in zip(self._parents, state["parents"], strict=True):
            parent.set_state(position)

    def interrupt(self) -> None:  # noqa: B027 - most passes wait for nobody
        """Ends a wait for other processes in another thread, which then closes the pass."""

    def close(self) -> None:
        """Ends the reading."""
        for parent in self._parents:
            parent.close()


class Reader(Pass):
    """One pass over elements, which reads from other readers."""

    _parents: tuple[Reader, ...]

    def __init__(self, *parents: Reader) -> None:
        self._parents = parents

    @property
    def _parent(self) -> Reader:
        """The first of the readers that it reads from."""
        return self._parents[0]

    @abstractmethod
    def __next__(self) -> Element:
        """Returns the next element."""


def require_own_threads(process: int) -> None:
    """Checks that the threads which read ahead exist: a wait for others would not end."""
    if os.getpid() != process:
        raise ContextError(
            f"Process {process} reads ahead for this iterator, by threads that do not exist in its "
            f"forked child {os.getpid()}. Make the iterator in the child: iter(dataset)."
        )


class _AsParent(Reader):
    """A reader whose position is that of its one parent."""

    def get_state(self) -> State:
        """Returns the parent's position."""
        return self._parent.get_state()

    def set_state(self, state: State) -> None:
        """Moves the parent."""
        self._parent.set_state(state)


class Mapped(_AsParent):
    """The results of a function of each element."""

    def __init__(self, parent: Reader, function: Callable[[Element], Element]) -> None:
        super().__init__(parent)
        self._source, self._function = parent, function

    def __next__(self) -> Element:
        """Returns the next result."""
        return self._function(next(self._source))


class Filtered(_AsParent):
    """The elements that a function accepts."""

    def __init__(self, parent: Reader, accepts: Callable[[Element], bool]) -> None:
        super().__init__(parent)
        self._accepts = accepts

    def __next__(self) -> Element:
        """Returns the next accepted element."""
        accepts = self._accepts
        for element in self._parent:
            if accepts(element):
                return element
        raise StopIteration


class Stacked(_AsParent):
    """Each `size` elements combined into one."""

    def __init__(
        self,
        parent: Reader,
        size: int,
        stack: Callable[[Sequence[Element]], Element],
        *,
        drop_remainder: bool,
    ) -> None:
        super().__init__(parent)
        self._size, self._stack, self._drop = size, stack, drop_remainder

    def __next__(self) -> Element:
        """Returns the next combination."""
        elements = list(itertools.islice(self._parent, self._size))
        if not elements or (self._drop and len(elements) < self._size):
            raise StopIteration
        return self._stack(elements)


class Zipped(Reader):
    """The elements of several readers combined, up to the end of the shortest."""

    def __init__(
        self, parents: Sequence[Reader], combine: Callable[[tuple[Element, ...]], Element]
    ) -> None:
        super().__init__(*parents)
        self._combine = combine

    def __next__(self) -> Element:
        """Returns the next combination."""
        return self._combine(tuple([next(parent) for parent in self._parents]))


class Replayed(Reader):
    """The elements of a Python iterator; a restore reads up to the position again."""

    def __init__(self, start: Callable[[], Iterator[Element]]) -> None:
        super().__init__()
        self._start = start
        self._iterator: Iterator[Element] | None = None
        self._given = 0
        self._interrupted = False

    def __next__(self) -> Element:
        """Returns the next element."""
        if self._iterator is None:
            self._iterator = self._start()
        try:
            element = next(self._iterator)
        except StopIteration:
            if self._interrupted:  # which ends a generator as its last element does
                raise OneShotError(
                    f"An interrupt came while element {self._given} was read, and the generator or "
                    "iterator behind this dataset has ended since. Begin a new iterator, or "
                    "restore(state()) this one, which reads the earlier elements again."
                ) from None
            raise
        except BaseException as error:
            self._interrupted = not isinstance(error, Exception)
            raise
        self._interrupted = False
        self._given += 1
        return element

    def get_state(self) -> State:
        """Returns the number of elements so far."""
        return {"given": self._given}

    def set_state(self, state: State) -> None:
        """Reads as many elements again."""
        self.close()
        self._given, self._interrupted = 0, False
        while self._given < state["given"]:
            next(self)

    def close(self) -> None:
        """Closes the iterator, if it can be closed: a generator runs its `finally` blocks."""
        iterator, self._iterator = self._iterator, None
        close = getattr(iterator, "close", None)
        if callable(close):
            close()
