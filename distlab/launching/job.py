"""A job: one program in several processes, started together and ended together."""

from __future__ import annotations

import queue
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, TypeAlias

from distlab.launching.cluster_processes import ClusterProcesses
from distlab.launching.exit_codes import described, for_shell
from distlab.launching.warden import Warden
from distlab.launching.worker_process import WorkerProcess, Write

_FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_Events: TypeAlias = "queue.SimpleQueue[WorkerProcess | signal.Signals]"


@dataclass(frozen=True)
class Job:
    """A program to run in several processes.

    All have `grace` seconds to end by themselves once one has failed, or they were asked to.
    """

    command: Sequence[str]
    workers: int
    devices: int | None = None
    grace: float = 10.0
    max_restarts: int = 0


class End(NamedTuple):
    """The end of a job: its exit code for a shell, and whether the launcher got a signal."""

    code: int
    signalled: bool


def run(job: Job, write: Write, say: Callable[[str], None]) -> End:
    """Runs a job to its end in the main thread; passes on SIGINT, SIGTERM and SIGHUP."""
    warden = Warden()
    end = End(0, signalled=False)
    try:
        for generation in range(job.max_restarts + 1):
            attempt = _Attempt(job, generation, warden, write, say)
            end = End(attempt.run(), signalled=attempt.signal is not None)
            if end.code == 0 or end.signalled:
                break
            if generation < job.max_restarts:
                say(f"starts all workers again, restart {generation + 1} of {job.max_restarts}")
    finally:
        warden.close()
    return end


class _Attempt:
    """One start of all processes; `signal` is what asked the launcher to end, None for nothing."""

    def __init__(
        self, job: Job, generation: int, warden: Warden, write: Write, say: Callable[[str], None]
    ) -> None:
        self.signal: signal.Signals | None = None
        self._job = job
        self._generation = generation
        self._warden = warden
        self._write = write
        self._say = say
        self._events: _Events = queue.SimpleQueue()
        self._lost = Path()
        self._failed: int | None = None  # the exit code of the first that failed
        self._sent: set[signal.Signals] = set()
        self._still_to_send: list[signal.Signals] = []
        self._deadline: float | None = None

    def run(self) -> int:
        """Runs the processes and returns the exit code for a shell."""
        began = time.monotonic()
        with TemporaryDirectory(prefix="distlab-") as folder, _signals_go_to(self._events):
            self._lost = Path(folder, "lost")
            processes = ClusterProcesses(
                self._job.command,
                self._job.workers,
                devices=self._job.devices,
                generation=self._generation,
                lost=str(self._lost),
                warden=self._warden,
                write=self._write,
                ended=self._events.put,
            )
            try:
                while processes.running:
                    event = self._next_event()
                    if event is None:
                        self._press(processes)
                    elif isinstance(event, signal.Signals):
                        self._pass_on(event, processes)
                    else:
                        self._note_end(event, processes, time.monotonic() - began)
            finally:
                processes.close()
        if self.signal is not None:
            return for_shell(-self.signal)
        return for_shell(self._failed or 0)

    def _next_event(self) -> WorkerProcess | signal.Signals | None:
        """Returns what happened, or None when the deadline has passed."""
        left = None if self._deadline is None else max(self._deadline - time.monotonic(), 0)
        try:
            return self._events.get(timeout=left)
        except queue.Empty:
            return None

    def _note_end(
        self, process: WorkerProcess, processes: ClusterProcesses, seconds: float
    ) -> None:
        assert process.code is not None
        coordinator = processes.is_coordinator(process)
        if not coordinator:
            processes.running.remove(process)
        if process.code == 0 and not coordinator:
            return
        if self._failed is None and self.signal is None:
            self._failed = process.code or 1
            text = f"{process.name} {described(process.code)} after {seconds:.1f} s"
            self._say(text)
            new = self._lost.with_suffix(".new")
            with suppress(OSError):  # a full disk, for which it may have failed
                new.write_text(text)
                new.rename(self._lost)  # which those read that have not met yet
            if processes.running:
                others = ", ".join(worker.name for worker in processes.running)
                self._say(f"{others}: {self._job.grace:g} s to end")
                self._begin_to_end(signal.SIGTERM, signal.SIGKILL)
        elif -process.code in self._sent:
            self._say(f"{process.name} was ended by {signal.Signals(-process.code).name}")
        else:
            self._say(f"{process.name} {described(process.code)}")

    def _pass_on(self, number: signal.Signals, processes: ClusterProcesses) -> None:
        if self.signal is not None:  # asked twice: nobody waits any more
            self._send(signal.SIGKILL, processes)
            return
        self.signal = number
        self._say(f"got {number.name}, and passes it on; {self._job.grace:g} s to end")
        self._send(number, processes)
        self._begin_to_end(signal.SIGKILL)

    def _send(self, number: signal.Signals, processes: ClusterProcesses) -> None:
        self._sent.add(number)
        processes.signal(number)

    def _begin_to_end(self, *numbers: signal.Signals) -> None:
        self._still_to_send = list(numbers)
        self._deadline = time.monotonic() + self._job.grace

    def _press(self, processes: ClusterProcesses) -> None:
        self._send(self._still_to_send.pop(0), processes)
        self._deadline = time.monotonic() + self._job.grace if self._still_to_send else None


@contextmanager
def _signals_go_to(events: _Events) -> Iterator[None]:
    """Puts signals into a queue for the length of a block."""

    def received(number: int, frame: object) -> None:
        del frame
        events.put(signal.Signals(number))

    before = {number: signal.signal(number, received) for number in _FORWARDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
