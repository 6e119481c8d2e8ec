"""Loops that can be paused, stepped, resumed and stopped while they run.

The loops over `controlled(...)` of one thread have one control, through which a page, a widget or
another thread controls them. It is asked before each element, so no step is interrupted. A click
counts for the program, whichever of its loops runs: see `begin_anew`.
"""

from __future__ import annotations

import builtins
import itertools
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypeVar

from distlab.errors import ArgumentTypeError
from distlab.events import Loop, sink
from distlab.text.shown import shown
from distlab.uncopied import Uncopied

if TYPE_CHECKING:
    from distlab.control.together import Order, Place, Together

T = TypeVar("T")
State: TypeAlias = Literal["running", "pausing", "paused", "stopping", "stopped", "between loops"]

PAUSE_SECONDS: Final = 3_600.0
"""The default time after which a paused loop resumes by itself."""

_POLL_SECONDS: Final = 0.2
_numbers = itertools.count()
_loop_numbers = itertools.count()
_controls: Final[weakref.WeakSet[LoopControl]] = weakref.WeakSet()
_lock = threading.RLock()
"""A loop that is garbage ends in the middle of anything else, this module's work included."""
_of_thread = threading.local()
_stops = itertools.count(1)
_stops_so_far = 0


@dataclass(eq=False)
class _Running:
    """A loop that runs."""

    name: str
    pause_seconds: float
    number: int
    position: int = 0


class LoopControl(Uncopied):
    """The control of a thread's loops; it may be used from any thread.

    It is "pausing" or "stopping" until the present element is done. `position` counts the elements
    that the present loop has yielded, or the last one.
    """

    _uncopied = (
        "{0!r} can't be copied or pickled: a copy would control nothing. Pass its number, and find "
        "it in loops() of this process."
    )

    def __init__(self, *, lasting: bool = False) -> None:
        self.number = next(_numbers)
        self._lasting = lasting
        self._thread: threading.Thread | None = None
        self._running: list[_Running] = []
        self._shown: _Running | None = None
        self._here: Place = (0, 0)
        self._hold: Place | None = None  # there is one of these two at most
        self._stop: Place | None = None
        self._is_step = False
        self._is_noted = False
        self._paused = False
        self._settling = False
        self._changed = threading.Condition()
        self._together: Together | None = None
        with _lock:
            _controls.add(self)

    @property
    def name(self) -> str:
        """Name of the present loop, or of the last one."""
        return self._shown.name if self._shown else ""

    @property
    def position(self) -> int:
        """Elements that the present loop has yielded, or the last one."""
        return self._shown.position if self._shown else 0

    @property
    def state(self) -> State:
        """The state of its loops."""
        if self._paused and self._is_reached(self._hold):
            return "paused"
        if self._stop is not None:
            return "stopping" if self._running else "stopped"
        if self._hold is not None:
            return "pausing"
        return "running" if self._running else "between loops"

    @property
    def listed(self) -> bool:
        """True from its first loop until the program ends or begins anew."""
        return self._shown is not None and self._thread is not None and self._thread.is_alive()

    def pause(self) -> None:
        """Makes the program wait before the next element of a loop."""
        self._ask("pause")

    def step(self) -> None:
        """Lets a paused program take one more element, and wait again."""
        self._ask("step")

    def resume(self) -> None:
        """Lets a paused program go on. Does nothing when it is not paused."""
        self._ask("resume")

    def stop(self) -> None:
        """Ends the loop before its next element, and later loops before their first."""
        self._ask("stop")

    def earliest(self, order: Order) -> Place:
        """Returns the place at which the order could be obeyed first."""
        with self._changed:
            if self._hold is None or order == "stop":
                return self._here
            program, begun = self._hold
            return program, begun + (order == "step")

    def obey(self, order: Order, place: Place) -> None:
        """Has an order take effect at a place that is not passed."""
        with self._changed:
            if order != "resume" and place[0] < self._here[0]:
                return  # the program began anew while workers agreed
            match order:
                case "pause" | "step":
                    self._is_step = order == "step" and self._hold is not None
                    self._hold = place if self._stop is None else None
                case "resume":
                    self._hold = None
                case "stop":
                    self._hold, self._stop = None, self._stop or place
                    if self._together is None:
                        self._note_stop()
            self._changed.notify_all()

    @contextmanager
    def settling(self) -> Iterator[None]:
        """Lets no further element begin while workers agree on a place."""
        with self._changed:
            self._settling = True
        try:
            yield
        finally:
            with self._changed:
                self._settling = False
                self._changed.notify_all()

    def begin(self, loop: _Running) -> None:
        """Notes that a loop begins; the loop calls it."""
        with self._changed:
            self._thread = threading.current_thread()
            self._join(self._thread.name)
            self._running.append(loop)
            self._shown = loop
        _emit(loop, "running")

    def may_take(self, loop: _Running) -> bool:
        """Waits while the program is paused; the loop calls it before each element."""
        with self._changed:
            self._wait(loop)
            if self._is_reached(self._stop):
                self._note_stop()
                return False
            program, begun = self._here
            self._here = program, begun + 1
            return True

    def skip(self) -> None:
        """Has a step be the next loop's first element: there was none; the loop calls it."""
        with self._changed:
            if self._is_step and self._hold == self._here:
                program, begun = self._here
                self._hold = program, begun + 1

    def end(self, loop: _Running) -> None:
        """Notes that a loop is over; the loop calls it."""
        with self._changed:
            if loop in self._running:  # the cell that began it may have ended
                self._running.remove(loop)
                self._shown = self._running[-1] if self._running else loop
            stopped = self._is_reached(self._stop)
        _emit(loop, "stopped" if stopped else "done")

    def begin_anew(self, *, interrupted: bool = False) -> None:
        """Forgets the orders, unless a loop runs that was not interrupted: a program begins.

        A background function is one program.
        """
        with self._changed:
            if interrupted:
                self._running.clear()
            if self._lasting or self._running:
                return
            program, begun = self._here
            self._here = program + 1, begun
            self._shown, self._is_noted = None, False
            # Of several workers another one may be in this program already, and have an order.
            self._hold, self._stop = (
                order if order is not None and order > self._here else None
                for order in (self._hold, self._stop)
            )

    def _ask(self, order: Order) -> None:
        if self._together is not None:
            self._together.ask(order)
            return
        with self._changed:
            self.obey(order, self.earliest(order))

    def _is_reached(self, place: Place | None) -> bool:
        return place is not None and self._here >= place

    def _note_stop(self) -> None:
        global _stops_so_far
        if not self._is_noted:
            self._is_noted, _stops_so_far = True, next(_stops)

    def _join(self, thread: str) -> None:
        """Has the loops of all workers controlled together, of threads of one name."""
        from distlab.processes import group  # loads JAX

        processes = group.current()
        if processes is not (self._together.processes if self._together else None):
            from distlab.control.together import Together

            self._together = Together(processes, self, thread) if processes else None

    def _wait(self, loop: _Running) -> None:
        until = 0.0
        try:
            while self._settling or self._is_reached(self._hold):
                if not self._settling and not self._paused:
                    self._paused = True
                    until = time.monotonic() + loop.pause_seconds
                    _emit(loop, "paused")
                self._changed.wait(_POLL_SECONDS)  # with a limit: Ctrl-C has to be handled
                if self._paused and time.monotonic() > until:
                    until += loop.pause_seconds
                    self.resume()
        finally:
            if self._paused:
                self._paused = False
                if not self._is_reached(self._stop):
                    _emit(loop, "running")

    def __repr__(self) -> str:
        return f"<LoopControl {self.name!r}: {self.state} at {self.position}>"


class Controlled(Generic[T]):
    """An iterable whose loops can be controlled; returned by `controlled`."""

    def __init__(self, elements: Iterable[T], name: str, pause_seconds: float) -> None:
        self._elements = elements
        self._name = name
        self._pause_seconds = pause_seconds

    def __iter__(self) -> Iterator[T]:
        """Begins a loop."""
        control = own()
        loop = _Running(self._name, self._pause_seconds, next(_loop_numbers))
        elements: Iterator[T] | None = None
        control.begin(loop)
        try:
            while control.may_take(loop):
                elements = iter(self._elements) if elements is None else elements
                try:
                    element = next(elements)
                except StopIteration:
                    control.skip()
                    return
                loop.position += 1
                yield element
        finally:  # also when the loop was left by break, or by an exception
            control.end(loop)


def controlled(
    elements: Iterable[T], *, name: str = "training", pause_seconds: float = PAUSE_SECONDS
) -> Controlled[T]:
    """Lets the dashboard and notebook views pause, step, resume and stop a loop.

    The loop checks its control before each element; the present step is always
    finished. All loops of a program have one control: a pause between two epochs holds the next
    one, and a stopped loop ends as if there were no more elements, like all loops after it. The
    rest of the program finds `stopped` of its recording True. The next recording begins without
    it, as does the next cell of a notebook. The check costs about a microsecond for each element.

    Of several workers all must run the same controlled loops: each click, on the page of any of
    them, takes effect before the same element on all.

    Args:
      elements: The iterable of the loop, such as a distributed dataset.
      name: The loop's name in the dashboard and in widgets.
      pause_seconds: The longest pause; then the loop resumes by itself, because the
        page that paused it may be closed.

    Returns:
      An iterable of the same elements, which can be looped over again.

    Raises:
      ArgumentTypeError: `elements` can't be iterated, or `name` is not a string.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> dataset = dl.data.Dataset.range(4).batch(2)
      >>> batches = strategy.experimental_distribute_dataset(dataset)
      >>> for epoch in range(2):
      ...     for batch in dl.controlled(batches, name="training"):
      ...         total = strategy.reduce("SUM", batch, axis=0)
      ...         print(epoch, int(total))
      0 1
      0 5
      1 1
      1 5
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
    """Returns the controls of the programs in this process that have loops, oldest first."""
    with _lock:
        found = list(_controls)
    return sorted((each for each in found if each.listed), key=lambda each: each.number)


def own() -> LoopControl:
    """Returns the control of this thread's loops."""
    control: LoopControl | None = getattr(_of_thread, "control", None)
    if control is None:
        control = _of_thread.control = LoopControl()
        if threading.current_thread() is threading.main_thread():
            _watch_cells(control)
    return control


def adopt(control: LoopControl) -> None:
    """Makes a control that of this thread's loops."""
    _of_thread.control = control


def begin_anew() -> None:
    """Has a new program begin in this thread, to which no earlier click belongs."""
    control: LoopControl | None = getattr(_of_thread, "control", None)
    if control is not None:
        control.begin_anew()


def stops() -> int:
    """Returns how many programs of this process were stopped."""
    return _stops_so_far


def _watch_cells(control: LoopControl) -> None:
    """Has a new program begin after each cell of a notebook."""
    shell = getattr(builtins, "get_ipython", lambda: None)()
    if shell is not None:
        shell.events.register("post_run_cell", lambda _: control.begin_anew(interrupted=True))


def _emit(loop: _Running, state: Literal["running", "paused", "stopped", "done"]) -> None:
    recorder = sink.recorder()
    if recorder.enabled:
        recorder.emit(
            Loop(
                time_ns=time.monotonic_ns(),
                loop=loop.number,
                name=loop.name,
                state=state,
                position=loop.position,
            )
        )
