"""Orders to the loops of several workers, each obeyed by all before the same element."""

from __future__ import annotations

import atexit
import json
import logging
import threading
import weakref
from contextlib import AbstractContextManager
from typing import Final, Literal, Protocol, TypeAlias

from distlab.errors import ClusterError, WorkerError
from distlab.processes import group
from distlab.processes.group import ProcessGroup, Worker
from distlab.threads import Thread

Order: TypeAlias = Literal["pause", "step", "resume", "stop"]
Place: TypeAlias = tuple[int, int]
"""A place in a thread's program: how often it began anew, and elements begun."""

_POLL_SECONDS: Final = 0.1
_LIMIT_SECONDS: Final = 10.0
"""Workers answer an order so soon, whatever their steps wait for: a thread does."""
_CHIEF_SECONDS: Final = _LIMIT_SECONDS + 5.0
_MOST_TRIES: Final = 100
_WHAT: Final = "a click on the buttons of its loops"
_log = logging.getLogger("distlab")


class Control(Protocol):
    """The control of a thread's loops."""

    @property
    def name(self) -> str:
        """Name of the present loop, or of the last one."""

    def earliest(self, order: Order) -> Place:
        """Returns the place at which the order could be obeyed first."""

    def obey(self, order: Order, place: Place) -> None:
        """Has an order take effect at a place that is not passed."""

    def settling(self) -> AbstractContextManager[None]:
        """Lets no further element begin while workers agree on a place."""


class Together:
    """Passes orders on to all workers, whose loops run in threads of one name.

    Orders are numbered texts in the key-value store, so all obey them in one order. At each, no
    worker begins a further element until the chief has made the furthest of their places known.
    """

    def __init__(self, processes: ProcessGroup, control: Control, thread: str) -> None:
        self.processes = processes
        self._control = weakref.ref(control)
        self._folder = f"loops/{thread}"
        self._next = 0
        self._ended = threading.Event()
        self._thread = Thread(self._watch, name="distlab loops")
        atexit.register(self.stop)  # the end of the process must not find the thread in JAX
        self._thread.start()

    def ask(self, order: Order) -> None:
        """Sends an order; the thread obeys it."""
        for number in range(self._next, self._next + _MOST_TRIES):
            try:
                self.processes.kv.set(f"{self._folder}/{number}", order)
            except ClusterError:
                if self.processes.kv.find(f"{self._folder}/{number}") is None:
                    raise
            else:
                return

    def stop(self) -> None:
        """Ends the thread."""
        atexit.unregister(self.stop)
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_POLL_SECONDS) and group.current() is self.processes:
            control = self._control()
            if control is None:
                break
            if self.processes.failure is not None:
                control.obey("resume", (0, 0))  # the next step names the lost worker
                break
            order = self.processes.kv.find(f"{self._folder}/{self._next}")
            if order is not None:
                self._settle(control, order)  # type: ignore[arg-type]
                self._next += 1
        atexit.unregister(self.stop)

    def _settle(self, control: Control, order: Order) -> None:
        try:
            with control.settling():
                control.obey(order, self._agreed(control.earliest(order)))
        except (ClusterError, WorkerError) as error:
            _log.warning(
                "The loop %r did not obey %r: %s All workers must run the same controlled loops.",
                control.name, order, error,
            )  # fmt: skip

    def _agreed(self, own: Place) -> Place:
        """Returns the furthest of the places at which the workers could obey: the chief's word."""
        processes, folder = self.processes, f"{self._folder}/{self._next}"
        processes.kv.set(f"{folder}/of/{processes.index}", json.dumps(own))
        if processes.is_chief:
            try:
                place = max(self._place_of(worker, f"{folder}/of") for worker in processes.workers)
            except WorkerError as error:
                lost = [error.worker, error.host, error.message]
                processes.kv.set(f"{folder}/agreed", json.dumps(lost))
                raise
            processes.kv.set(f"{folder}/agreed", json.dumps(place))
            return place
        until = processes.until(_CHIEF_SECONDS)
        text = processes.awaited(f"{folder}/agreed", processes.workers[0], _WHAT, until)
        agreed = json.loads(text)
        if len(agreed) > 2:
            raise WorkerError(*agreed)
        program, begun = agreed
        return program, begun

    def _place_of(self, worker: Worker, folder: str) -> Place:
        until = self.processes.until(_LIMIT_SECONDS)
        text = self.processes.awaited(f"{folder}/{worker.index}", worker, _WHAT, until)
        program, begun = json.loads(text)
        return program, begun
