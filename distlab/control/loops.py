"""Loops that can be paused, stepped, resumed and stopped while they run.

A loop over `controlled(...)` is listed by `loops`, through which a page, a
widget or another thread controls it. The loop checks its control before each
element, so no step is interrupted.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from distlab.errors import ArgumentTypeError
from distlab.events import Loop, sink
from distlab.text.shown import shown
from distlab.uncopied import Uncopied

T = TypeVar("T")
State: TypeAlias = Literal["running", "pausing", "paused", "stopping", "stopped", "done"]

PAUSE_SECONDS: Final = 3_600.0
"""The default time after which a paused loop resumes by itself."""

_POLL_SECONDS: Final = 0.2
_numbers = itertools.count()
_running: list[LoopControl] = []
_lock = threading.RLock()
"""A loop that is garbage ends in the middle of anything else, this module's work included."""


class LoopControl(Uncopied):
    """The control of one running loop; it may be used from any thread.

    A loop that is "pausing" or "stopping" does its present element first; one that is "done" has
    reached its own end. `position` counts the elements that were yielded.
    """

    _uncopied = (
        "{0!r} can't be copied or pickled: a copy would control nothing. Pass its number, and find "
        "it in loops() of this process."
    )

    def __init__(self, name: str, pause_seconds: float) -> None:
        self.number = next(_numbers)
        self.name = name
        self.state: State = "running"
        self.position = 0
        self.thread = threading.get_ident()
        self._pause_seconds = pause_seconds
        self._steps = 0
        self._changed = threading.Condition()

    def pause(self) -> None:
        """Makes the loop wait before its next element. Does nothing when it is paused or over."""
        with self._changed:
            if self.state == "running":
                self.state = "pausing"

    def step(self) -> None:
        """Lets the loop run for one more element, and wait again."""
        with self._changed:
            if self.state in {"running", "pausing", "paused"}:
                self._steps += self.state == "paused"
                self.state = "pausing"
                self._changed.notify_all()

    def resume(self) -> None:
        """Lets a paused loop go on. Does nothing when it is not paused."""
        with self._changed:
            if self.state in {"pausing", "paused"}:
                self.state, self._steps = "running", 0
                self._changed.notify_all()

    def stop(self) -> None:
        """Ends the loop before its next element, as if that did not exist."""
        with self._changed:
            if self.state in {"running", "pausing", "paused"}:
                self.state = "stopping"
                self._changed.notify_all()

    def may_go_on(self) -> bool:
        """Waits while the loop is paused; the loop calls it before each element."""
        with self._changed:
            if self.state == "pausing" and not self._steps:
                self._wait()
            self._steps = 0
            return self.state != "stopping"

    def end(self) -> Literal["stopped", "done"]:
        """Marks the loop as over; the loop calls it."""
        with self._changed:
            ended: Literal["stopped", "done"] = "stopped" if self.state == "stopping" else "done"
            self.state = ended
            self._changed.notify_all()
            return ended

    def _wait(self) -> None:
        self._become("paused")
        limit = time.monotonic() + self._pause_seconds
        while self.state == "paused" and time.monotonic() < limit:
            self._changed.wait(_POLL_SECONDS)  # with a limit: Ctrl-C has to be handled
        if self.state in {"paused", "running"}:  # also when the pause was never ended
            self._become("running")

    def _become(self, state: Literal["running", "paused"]) -> None:
        self.state = state
        _emit(self, state)

    def __repr__(self) -> str:
        return f"<LoopControl {self.name!r}: {self.state} at {self.position}>"


class Controlled(Generic[T]):
    """An iterable whose loops can be controlled; returned by `controlled`."""

    def __init__(self, elements: Iterable[T], name: str, pause_seconds: float) -> None:
        self._elements = elements
        self._name = name
        self._pause_seconds = pause_seconds

    def __iter__(self) -> Iterator[T]:
        """Begins a loop, which `loops` lists until it ends."""
        control = LoopControl(self._name, self._pause_seconds)
        elements = iter(self._elements)
        with _lock:
            _running.append(control)
        _emit(control, "running")
        try:
            while control.may_go_on():
                try:
                    element = next(elements)
                except StopIteration:
                    return
                control.position += 1
                yield element
        finally:  # also when the loop was left by break, or by an exception
            ended = control.end()
            with _lock:
                _running.remove(control)
            _emit(control, ended)


def controlled(
    elements: Iterable[T], *, name: str = "training", pause_seconds: float = PAUSE_SECONDS
) -> Controlled[T]:
    """Lets the dashboard and notebook views pause, step, resume and stop a loop.

    The loop checks its control before each element; the present step is always
    finished. A stopped loop ends as if there were no more elements. The check
    costs about a microsecond for each element.

    Args:
      elements: The iterable of the loop, such as a distributed dataset.
      name: The loop's name in the dashboard and in widgets.
      pause_seconds: The longest pause; then the loop resumes by itself, because the
        page that paused it may be closed.

    Returns:
      An iterable of the same elements. Each loop over it has a control of its own.

    Raises:
      ArgumentTypeError: `elements` can't be iterated, or `name` is not a string.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> dataset = dl.data.Dataset.range(4).batch(2)
      >>> batches = strategy.experimental_distribute_dataset(dataset)
      >>> for batch in dl.controlled(batches, name="training"):
      ...     total = strategy.reduce("SUM", batch, axis=0)
      ...     print(int(total))
      1
      5
    """
    if getattr(elements, "__iter__", None) is None or getattr(elements, "shape", None) == ():
        raise ArgumentTypeError(
            f"controlled accepts an iterable, got a {type(elements).__name__}: "
            f"{shown(elements)}. Pass the iterable of the loop, such as a distributed dataset."
        )
    if not isinstance(name, str):
        raise ArgumentTypeError(
            f"name must be a string, got {shown(name)}. Leave it out for 'training'."
        )
    return Controlled(elements, name, pause_seconds)


def loops() -> list[LoopControl]:
    """Returns the controls of the loops that are running in this process, oldest first."""
    with _lock:
        return list(_running)


def _emit(control: LoopControl, state: Literal["running", "paused", "stopped", "done"]) -> None:
    recorder = sink.recorder()
    if recorder.enabled:
        recorder.emit(
            Loop(
                time_ns=time.monotonic_ns(),
                loop=control.number,
                name=control.name,
                state=state,
                position=control.position,
            )
        )
