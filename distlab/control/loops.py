"""Loops that someone can pause, step, resume and stop while they run.

A loop asks for it by going through `controlled`. Whoever controls it, a page, a
widget or another thread, finds it by `loops`. The loop looks at its control
before each element, so nothing is interrupted in the middle of a step.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab.events import Loop, sink
from distlab.text.counts import is_number

T = TypeVar("T")
State: TypeAlias = Literal["running", "pausing", "paused", "stopping", "stopped", "done"]

PAUSE_SECONDS: Final = 3_600.0
"""How long a paused loop waits before it goes on by itself, unless it was told otherwise."""

_LOOK_SECONDS: Final = 0.2
_numbers = itertools.count()
_running: list[LoopControl] = []
_lock = threading.Lock()


class LoopControl:
    """What can be done to one running loop; it may be used from any thread.

    Attributes:
      number: which loop of this process, from 0.
      name: what the loop calls itself.
      state: `"running"`; `"pausing"` until the element at work is done, then
        `"paused"`; `"stopping"` likewise, then `"stopped"`; `"done"` when the loop
        came to its own end.
      position: elements handed to the loop so far.
      thread: identifier of the thread that runs it.
    """

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
        """Lets the loop wait before its next element. Does nothing when it is paused or over."""
        with self._changed:
            if self.state == "running":
                self.state = "pausing"

    def step(self) -> None:
        """Lets the loop take one more element, and wait again."""
        with self._changed:
            if self.state in {"running", "pausing", "paused"}:
                self._steps += self.state == "paused"
                self.state = "pausing"
                self._changed.notify_all()

    def resume(self) -> None:
        """Lets the loop go on. Does nothing when it is not paused."""
        with self._changed:
            if self.state in {"pausing", "paused"}:
                self.state, self._steps = "running", 0
                self._changed.notify_all()

    def stop(self) -> None:
        """Ends the loop before its next element, as if there were no more."""
        with self._changed:
            if self.state in {"running", "pausing", "paused"}:
                self.state = "stopping"
                self._changed.notify_all()

    def may_go_on(self) -> bool:
        """Waits while the loop is paused; the loop calls it before each element.

        Returns:
          False when the loop shall end.
        """
        with self._changed:
            if self.state == "pausing" and not self._steps:
                self._wait()
            self._steps = 0
            return self.state != "stopping"

    def end(self) -> Literal["stopped", "done"]:
        """Marks the loop as over; the loop calls it.

        Returns:
          How it ended.
        """
        with self._changed:
            ended: Literal["stopped", "done"] = "stopped" if self.state == "stopping" else "done"
            self.state = ended
            self._changed.notify_all()
            return ended

    def _wait(self) -> None:
        self._become("paused")
        limit = time.monotonic() + self._pause_seconds
        while self.state == "paused" and time.monotonic() < limit:
            self._changed.wait(_LOOK_SECONDS)  # not for ever: Ctrl-C has to come through
        if self.state in {"paused", "running"}:  # also when nobody ended the pause
            self._become("running")

    def _become(self, state: Literal["running", "paused"]) -> None:
        self.state = state
        _emit(self, state)

    def __repr__(self) -> str:
        return f"<LoopControl {self.name!r}: {self.state} at {self.position}>"


class Controlled(Generic[T]):
    """An iterable whose loops can be controlled; made by `controlled`."""

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

        for batch in dl.controlled(dist_dataset):
            strategy.run(step, args=(batch,))

    The loop looks at its control before each element; the step at work is always
    finished. A stopped loop ends as if there were no more elements. Without anyone
    who controls it, this costs about a microsecond for each element.

    Args:
      elements: what to go through, such as a distributed dataset.
      name: what to call the loop where it is shown.
      pause_seconds: how long a paused loop waits at most; then it goes on by
        itself, because whoever paused it may be gone.

    Returns:
      An iterable of the same elements. Each loop over it has a control of its own.

    Raises:
      ArgumentTypeError: `elements` can't be iterated, or `name` is no text.
      ArgumentValueError: `pause_seconds` is not above 0.
    """
    if getattr(elements, "__iter__", None) is None:
        raise ArgumentTypeError(
            f"controlled goes through an iterable, got a {type(elements).__name__}: "
            f"{elements!r:.80}. Give it what the loop goes through, such as a distributed dataset."
        )
    if not isinstance(name, str):
        raise ArgumentTypeError(f"name must be a text, got {name!r:.80}.")
    if not is_number(pause_seconds) or not pause_seconds > 0:
        raise ArgumentValueError(
            f"pause_seconds must be a number above 0, got {pause_seconds!r:.80}. It is how long a "
            "paused loop waits before it goes on by itself."
        )
    return Controlled(elements, name, float(pause_seconds))


def loops() -> list[LoopControl]:
    """Returns the controls of the loops that run now in this process, oldest first."""
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
