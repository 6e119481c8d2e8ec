"""Iterators over a dataset, with a position that can be saved and restored."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Final

from distlab.data.plan.engine import Element, Reader, State
from distlab.data.plan.optional import Optional
from distlab.data.plan.plan import Node, Reading, open_plan, walk
from distlab.data.plan.resumable import Resumable
from distlab.data.plan.seeded import Seeded
from distlab.devices.jax_internals import being_staged
from distlab.errors import InvalidArgumentError, IteratorContextError, OutOfRangeError
from distlab.text.shown import shown

_NOTED_EVERY: Final = 16
"""After how many elements the position is noted, which takes as long as reading a small one."""


class _Iteration(Resumable):
    """One iteration over a dataset.

    Threads that share it get each element once. An interrupt may come between the reads of the
    examples of a batch: the next element is then read anew, from where the last one ended, if the
    data can be read again. Once closed it opens the data there, too, when it is read on.
    """

    def __init__(self, plan: Node) -> None:
        self._plan = plan
        self._lock = threading.RLock()
        self._shuffles = [node for node in walk(plan) if isinstance(node, Seeded)]
        self._passes = [node.next_pass() for node in self._shuffles]
        self._reader = self._opened(self._passes)
        self._noted: State = {}
        self._since = _NOTED_EVERY
        self._amid = self._closed = False

    def _next(self) -> Element:
        with self._lock:
            if self._amid:
                self._go_back()
            if self._closed:
                self._open_again()
            if self._since == _NOTED_EVERY:
                self._noted, self._since = self._reader.get_state(), 0
            try:
                element = next(self._reader)
            except BaseException as error:
                if isinstance(error, Exception):
                    self._since += 1
                else:
                    self._amid = True
                raise
            self._since += 1
            return element

    @property
    def element_spec(self) -> Any:
        """The nest of `TensorSpec` of an element's value."""
        return self._plan.spec

    def state(self) -> State:
        """Returns the position: a dict of lists, strings and numbers, for any process."""
        with self._lock:
            if self._amid:
                self._go_back()
            chosen = zip(self._shuffles, self._passes, strict=True)
            shuffles = [[seed, number, node.window] for node, (seed, number) in chosen]
            return {"shuffles": shuffles, "reader": self._reader.get_state()}

    def restore(self, state: State) -> None:
        """Goes to a position, so that the next element is the one that followed it."""
        given: Any = state
        if isinstance(given, dict) and set(given) == {"batch", "ended", "reader"}:
            given = state = given["reader"]  # of the same data, divided over replicas
        if not isinstance(given, dict) or set(given) != {"shuffles", "reader"}:
            raise InvalidArgumentError(
                f"A position must be the result of an iterator's state(), got {shown(given)}. "
                "Restore one that an iterator of the same pipeline returned."
            )
        passes = self._passes_of(state)
        with self._lock:
            reader = self._opened(passes)
            try:
                reader.set_state(state["reader"])
            except BaseException as error:
                reader.close()
                if isinstance(error, StopIteration | KeyError):
                    raise InvalidArgumentError(
                        "The position is of other operations than those of this dataset, or behind "
                        f"its end, got {shown(state['reader'])}. Restore it into an iterator over "
                        "the pipeline and the data that it was saved with."
                    ) from error
                raise
            self._reader.close()
            self._passes, self._reader = passes, reader
            self._since, self._amid, self._closed = _NOTED_EVERY, False, False

    def close(self) -> None:
        """Stops reading ahead."""
        self._reader.close()
        self._closed = True

    def _open_again(self) -> None:
        """Opens the data where it was closed; a closed reader would begin anew, or end."""
        reader = self._opened(self._passes)
        reader.set_state(self._reader.get_state())
        self._reader, self._since, self._closed = reader, _NOTED_EVERY, False

    def _go_back(self) -> None:
        """Goes to where the last element ended, after an interrupt amid the next one."""
        if self._plan.rereadable:
            reader = self._opened(self._passes)
            reader.set_state(self._noted)
            for _ in range(self._since):
                with contextlib.suppress(Exception):  # it was raised when it was its turn
                    next(reader)
            interrupted, self._reader = self._reader, reader
            interrupted.close()
            self._closed = False
        self._amid = False

    def _passes_of(self, state: State) -> list[tuple[int, int]]:
        """Returns the seed and pass of each shuffle, after a check of what is shuffled."""
        saved = [tuple(each) for each in state["shuffles"]]
        if len(saved) != len(self._shuffles):
            raise InvalidArgumentError(
                f"The position belongs to a dataset with {len(saved)} shuffles, "
                f"this one has {len(self._shuffles)}. Restore into the same pipeline."
            )
        for (_, _, *windows), node in zip(saved, self._shuffles, strict=True):
            if windows and windows != [node.window]:
                raise InvalidArgumentError(
                    f"The position is in the order of a shuffle that draws from {windows[0]} "
                    f"elements, and this one draws from {node.window}: elements would repeat or "
                    "be left out. Restore it into the same pipeline over the same data."
                )
        return [(seed, number) for seed, number, *_ in saved]

    def _opened(self, passes: list[tuple[int, int]]) -> Reader:
        reading = Reading(dict(zip(self._shuffles, passes, strict=True)))
        return open_plan(self._plan, reading)


class Elements(_Iteration, Iterator[Element]):
    """One iteration over a dataset, with the positions of the examples."""

    def __next__(self) -> Element:
        """Returns the next element."""
        return self._next()


class Values(_Iteration, Iterator[Any]):
    """One iteration over a dataset's values."""

    def __init__(self, plan: Node) -> None:
        super().__init__(plan)
        self._of_a_program = being_staged()

    def __next__(self) -> Any:
        """Returns the next value."""
        if being_staged() and not self._of_a_program:
            raise IteratorContextError(
                "next() of a dataset's iterator was called inside a function that is compiled, by "
                "strategy.run or jax.jit. It would read one element, and compile it in for all "
                "later calls. Call it outside and pass the element: "
                "strategy.run(fn, args=(next(iterator),))."
            )
        return self._next().value

    def next(self) -> Any:
        """Returns the next value: `next(iterator)`, as a method of TensorFlow's iterators."""
        return next(self)

    def get_next(self) -> Any:
        """Returns the next value, as `next()` does."""
        try:
            return next(self)
        except StopIteration:
            raise OutOfRangeError(
                "The dataset has no more elements. End the loop there, or repeat() the dataset."
            ) from None

    def get_next_as_optional(self) -> Optional:
        """Returns the next value, or an empty `Optional` at the end."""
        try:
            return Optional.from_value(next(self))
        except StopIteration:
            return Optional.empty()
