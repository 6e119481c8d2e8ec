"""A function in a thread of its own, so that a notebook's cells and buttons stay usable."""

from __future__ import annotations

import atexit
import itertools
import logging
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final, Generic, Literal, ParamSpec, TypeAlias, TypeVar

from distlab.context import scopes
from distlab.control.loops import LoopControl, adopt
from distlab.devices import in_flight, jax_internals
from distlab.errors import ArgumentTypeError, ContextError
from distlab.text.html import card
from distlab.text.shown import shown
from distlab.threads import end_soon
from distlab.uncopied import Uncopied
from distlab.values.checks import require_plain

P = ParamSpec("P")
T = TypeVar("T")
Status: TypeAlias = Literal["running", "stopping", "finished", "stopped", "failed"]

_EXIT_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.02
_MOST_TEXT: Final = 300
_log = logging.getLogger("distlab")
_numbers = itertools.count()


class Background(Uncopied, Generic[T]):
    """A function that runs in the background; returned by `background`.

    Attributes:
      name: The function's name.

    Example:
      >>> import distlab as dl
      >>> training = dl.background(lambda: 42)
      >>> training.result(timeout=60)
      42
      >>> training.running, training.done()
      (False, True)
    """

    _uncopied = (
        "{0!r} can't be copied or pickled: its thread belongs to this process. Pass what result() "
        "returns."
    )

    def __init__(self, name: str, work: Callable[[], T]) -> None:
        self.name = name
        self._work = work
        self._stop_asked = threading.Event()
        self._error: BaseException | None = None
        self._value: list[T] = []
        self._control = LoopControl(lasting=True)
        self._ended = threading.Event()
        self._began = time.monotonic()
        self._seconds: float | None = None
        atexit.register(self._stop_at_exit)
        self._thread = threading.Thread(
            target=self._run, name=f"distlab-background-{next(_numbers)}", daemon=True
        )
        self._thread.start()

    @property
    def running(self) -> bool:
        """True until the function has ended."""
        return not self._ended.is_set()

    def done(self) -> bool:
        """Returns whether the function has ended, by returning or raising."""
        return self._ended.is_set()

    def result(self, timeout: float | None = None) -> T:
        """Waits for the function, and returns its result."""
        if threading.current_thread() is self._thread:
            raise ContextError(
                f"{self.name} waits for its own result, which it can't return before. Call "
                "result() outside of the function."
            )
        if not self._thread.is_alive() and not self._ended.is_set():
            raise ContextError(
                f"{self.name} runs in the process from which this one was forked. Wait for its "
                "result there, or begin it in this process."
            )
        if not self._ended.wait(timeout):
            raise TimeoutError(
                f"{self.name} has not ended within {timeout} s. Wait longer, or call stop()."
            )
        if self._error is not None:
            raise self._error
        return self._value[0]

    def stop(self) -> None:
        """Ends the function's loops over `distlab.controlled`, each before its next element.

        Loops that it begins later end at once as well. Neither a loop over another iterable nor a
        function without loops can be stopped.
        """
        if self.running and not self._stop_asked.is_set():
            self._stop_asked.set()
            self._control.stop()

    def _loops(self) -> list[LoopControl]:
        return [self._control] if self._control.listed else []

    def _run(self) -> None:
        adopt(self._control)
        try:
            self._value.append(self._work())
        except BaseException as error:  # noqa: BLE001 - result() raises it in the thread that waits
            self._error = error
            if not isinstance(error, SystemExit) or error.code:
                _log.error(
                    "%s failed in the background: %s: %s. Its result() raises this.",
                    self.name, type(error).__name__, error,
                )  # fmt: skip
        finally:
            atexit.unregister(self._stop_at_exit)
            self._seconds = time.monotonic() - self._began
            del self._work  # releases the arguments
            self._ended.set()

    def _stop_at_exit(self) -> None:
        """Lets the present step end before the interpreter does."""
        in_flight.end_threads()  # also ends loops that nobody can stop, at their next step
        self.stop()
        self._ended.wait(_EXIT_SECONDS)
        # Its loop is over something else, and takes no step of a strategy.
        until = time.monotonic() + _EXIT_SECONDS
        while self.running and time.monotonic() < until:
            end_soon(self._thread)
            self._ended.wait(_POLL_SECONDS)

    @property
    def _status(self) -> Status:
        if self.running:
            return "stopping" if self._stop_asked.is_set() else "running"
        if self._error is not None:
            return "failed"
        return "stopped" if self._stop_asked.is_set() else "finished"

    def _facts(self) -> str:
        seconds = self._seconds
        if seconds is None:
            return f"{self._status} for {time.monotonic() - self._began:.1f} s"
        return f"{self._status} after {seconds:.1f} s"

    def _error_text(self) -> str:
        error = self._error
        return "" if error is None else f"{type(error).__name__}: {error}"[:_MOST_TEXT]

    def __repr__(self) -> str:
        texts = [self._facts(), *(map(_loop_text, self._loops()) if self.running else ())]
        if self._error is not None:
            texts.append(self._error_text())
        return f"<background {self.name}: {'; '.join(texts)}>"

    def _repr_html_(self) -> str:
        """Shows its state and loops in notebooks."""
        rows = [[loop.name, _loop_text(loop, named=False)] for loop in self._loops()]
        if not self.running:
            rows = [["result", type(self._value[0]).__name__]] if self._value else []
        if self._error is not None:
            rows = [["error", self._error_text()]]
        return card(f"background {self.name}", self._facts(), (), rows)


def background(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Background[T]:
    """Runs a function in a thread of its own, and returns at once.

    In a notebook the cell ends at once, so that other cells can run meanwhile and
    the buttons of all widgets work, in every front end. The function runs with the
    caller's strategy in scope and its context variables. Several may run at the same
    time: their steps take turns on the devices.

    Args:
      function: The function to run.
      *args: Its positional arguments.
      **kwargs: Its keyword arguments.

    Returns:
      A handle: `running`, `done()`, `stop()` and `result()`.

    Raises:
      ArgumentTypeError: `function` can't be called.
      StructureError: It is a generator function or an async function.
      ContextError: The caller is a function that a strategy runs on its replicas, or that is
        being traced.

    Example:
      >>> import distlab as dl
      >>> def train(epochs):
      ...     return [1 / (epoch + 1) for epoch in range(epochs)]
      >>> training = dl.background(train, epochs=2)
      >>> training.result()
      [1.0, 0.5]
    """
    if not callable(function):
        raise ArgumentTypeError(
            f"background runs a function, got a {type(function).__name__}: {shown(function)}. "
            "Write background(train, ...), not background(train(...))."
        )
    require_plain(function, "background")
    strategy = scopes.current_strategy() if scopes.has_strategy() else None
    if strategy is not None and not scopes.in_cross_replica_context():
        raise ContextError(
            "background starts a program of its own, so it can't be called by a function that "
            f"{strategy!r} runs on each replica. Call background outside of that function."
        )
    if jax_internals.being_staged():
        raise ContextError(
            "background was called in a function that is being traced, as by jax.jit, and would "
            "start its function now, but not at later calls. Call it outside."
        )
    in_context = jax_internals.copied_context()

    def work() -> T:
        with scopes.Scope(strategy) if strategy is not None else nullcontext():
            return function(*args, **kwargs)

    name = getattr(function, "__name__", type(function).__name__)
    return Background(name, lambda: in_context(work))


def _loop_text(loop: LoopControl, *, named: bool = True) -> str:
    text = f"{loop.state}, {loop.position} in this loop"
    return f"{loop.name} {text}" if named else text
