"""The processes that run one program together, as one of them sees them."""

from __future__ import annotations

import copy
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, final

import jax

from distlab.devices import dispatch_order
from distlab.devices.mesh import ReplicaMesh
from distlab.errors import WorkerError
from distlab.processes.key_values import KeyValues
from distlab.processes.meeting import Link
from distlab.threads import waiting

_current: ProcessGroup | None = None

LEFT: Final = "left"
"""The folder that names the processes which have ended their program, or left the cluster."""

_WAIT_SECONDS: Final = 1800.0
"""XLA's own limit of collectives on CPU devices."""
_NOTED_SECONDS: Final = 0.3
"""A process notes its failure before its end, which the watcher reads ten times a second."""
_SLICE_SECONDS: Final = 0.5
"""A wait looks this often for a lost process, and for Ctrl-C."""


@final
@dataclass(frozen=True)
class Worker:
    """One of the processes; its task is such as `"worker:1"`, its host the machine's name."""

    index: int
    task: str
    host: str
    pid: int
    devices: int

    @property
    def name(self) -> str:
        """The name that messages and pages show, such as `"worker 1"`."""
        return f"worker {self.index}"

    def __str__(self) -> str:
        """Names the worker and its machine."""
        return f"{self.name} ({self.task} on {self.host})"


@final
class Wait(NamedTuple):
    """A wait for a text of another process: the place of the program, and the text's key."""

    place: str
    worker: int
    key: str


@final
class ProcessGroup:
    """The processes of one generation of a cluster; process 0 is the chief.

    `timeout` is the seconds of a wait without a limit of its own; None for half an hour.
    """

    def __init__(
        self,
        index: int,
        workers: tuple[Worker, ...],
        *,
        generation: int,
        links: tuple[Link, ...],
        timeout: float | None,
    ) -> None:
        self.index = index
        self.workers = workers
        self.generation = generation
        self.links = links
        self.timeout = timeout
        self.kv = KeyValues(f"distlab/{generation}/")
        self._failure: WorkerError | None = None
        self._calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """The number of processes."""
        return len(self.workers)

    @property
    def is_chief(self) -> bool:
        """True for process 0, the chief, which saves and whose values begin."""
        return self.index == 0

    @property
    def worker(self) -> Worker:
        """This process."""
        return self.workers[self.index]

    @property
    def others(self) -> tuple[Worker, ...]:
        """All processes but this one."""
        return tuple(worker for worker in self.workers if worker.index != self.index)

    @property
    def local_devices(self) -> tuple[jax.Device, ...]:
        """The devices of this process."""
        return tuple(jax.local_devices())

    @property
    def failure(self) -> WorkerError | None:
        """The error of another process, once a watcher knows it."""
        return self._failure

    def fail(self, error: WorkerError) -> None:
        """Notes that a process is lost: waits, and steps to come, raise the first such error."""
        if self._failure is None:
            self._failure = error
            dispatch_order.refuse(error)

    def check(self) -> None:
        """Raises the error of another process, if there is one."""
        if self._failure is not None:
            raise copy.copy(self._failure)

    def has_left(self, worker: Worker) -> bool:
        """Returns whether a process has ended its program, or has left."""
        return self.kv.find(f"{LEFT}/{worker.index}") is not None

    def lost(self, worker: Worker, message: str) -> WorkerError:
        """Returns the error for a lost process."""
        return WorkerError(worker.name, worker.host, message)

    def next_number(self, name: str) -> int:
        """Returns how often it was called for a name before: all processes in the same order."""
        with self._lock:
            number = self._calls[name]
            self._calls[name] += 1
        return number

    def exchange(self, name: str, text: str, timeout: float | None = None) -> list[str]:
        """Returns the texts that all processes pass, in process order."""
        number = self.send(name, text)
        place = f"exchange/{name}/{number}/"
        until = self.until(timeout)
        texts = [
            text
            if worker.index == self.index
            else self.awaited(f"{place}{worker.index}", worker, f"{name} {number}", until)
            for worker in self.workers
        ]
        if number:  # all have passed this text, so they have read the one before it
            self.kv.delete(f"exchange/{name}/{number - 1}/{self.index}")
        return texts

    def send(self, name: str, text: str) -> int:
        """Takes part in an exchange without waiting for the texts of the others."""
        number = self.next_number(name)
        self.kv.set(f"exchange/{name}/{number}/{self.index}", text)
        return number

    def from_chief(self, name: str, text: str | None, timeout: float | None = None) -> str:
        """Returns the text that the chief passes, who does not wait for the others."""
        number = self.next_number(name)
        key = f"chief/{name}/{number}"
        if self.is_chief:
            self.kv.set(key, text or "")
            return text or ""
        return self.awaited(key, self.workers[0], f"{name} {number}", self.until(timeout))

    def barrier(self, name: str, timeout: float | None = None) -> None:
        """Waits until all processes have called it."""
        self.exchange(f"barrier {name}", "", timeout)

    def until(self, timeout: float | None = None) -> float:
        """Returns the end of a wait that begins now, as `time.monotonic` counts."""
        seconds = self.timeout if timeout is None else timeout
        return time.monotonic() + (_WAIT_SECONDS if seconds is None else seconds)

    def awaited(
        self,
        key: str,
        worker: Worker,
        place: str,
        until: float,
        *,
        remedy: str = "",
        check: Callable[[], None] | None = None,
    ) -> str:
        """Returns the text that a worker stores: the one wait on the key-value store.

        Processes that wait for each other are found by `wait_guard`. A `WorkerError` with `remedy`
        ends the wait once a worker is lost, the worker's program has ended, or at `until`; `check`
        may raise another error.
        """
        check = check or self.check
        with waiting(Wait(place, worker.index, key)):
            while True:
                check()
                left = min(until - time.monotonic(), _SLICE_SECONDS)
                text = self.kv.awaited(key, max(0.001, left))
                if text is not None:
                    return text
                if self.has_left(worker) and self.kv.find(key) is None:
                    time.sleep(_NOTED_SECONDS)
                    check()
                    ended = f'Its program has ended, and this one waits for it at "{place}".'
                    raise self.lost(worker, f"{ended} {remedy}".rstrip())
                if time.monotonic() >= until:
                    late = f'It did not come to "{place}" in time.'
                    raise self.lost(worker, f"{late} {remedy}".rstrip())

    def __repr__(self) -> str:
        """Names this process."""
        return f"ProcessGroup({self.worker} of {self.count}, generation {self.generation})"


def current() -> ProcessGroup | None:
    """Returns the processes that this one has joined; None in a program of one process."""
    return _current


def across(mesh: ReplicaMesh) -> ProcessGroup | None:
    """Returns the processes whose devices a mesh has; None where all are this process's."""
    return _current if len(mesh.local_replicas) < mesh.replicas else None


def become(group: ProcessGroup | None) -> None:
    """Makes these the processes that this one has joined. `joining` calls it."""
    global _current
    _current = group
