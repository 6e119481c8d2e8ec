"""The recorder that the core's events reach: onto the ring, and no further."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import jax
import msgspec

from distlab.advice import advise
from distlab.devices import jax_internals, selection
from distlab.events import Capture, Compile, Error, Event, Run, RunEnd, Step, sink
from distlab.profiling.capture import Capturer
from distlab.profiling.compiled import read_program, read_programs
from distlab.profiling.prober import Prober
from distlab.profiling.watcher import Watcher
from distlab.recording.account import Account
from distlab.recording.metrics import Metrics
from distlab.recording.ring import Ring
from distlab.recording.writer import Writer

_CAPTURE_SECONDS: Final = 10.0
"""How long the end of a recording waits for a capture that is being read."""

_living: weakref.WeakSet[RingRecorder] = weakref.WeakSet()


class Announcement:
    """A `Run` event that is still to be made, once something happens.

    Args:
      name: the run's name.
      total_steps: steps the run means to take, None when it did not say.
      writer: the run file that begins with it, None for the ring alone.
      cursor: where the ring was then.
    """

    def __init__(
        self, name: str, total_steps: int | None, writer: Writer | None, cursor: int = 0
    ) -> None:
        self.name = name
        self.total_steps = total_steps
        self.writer = writer
        self.cursor = cursor
        self.made = False


class RingRecorder:
    """Keeps events in a ring; run files and pages read them from there.

    Args:
      ring: where events go.
    """

    enabled = True

    def __init__(self, ring: Ring | None = None) -> None:
        self.ring = Ring() if ring is None else ring
        self.last_step = -1
        self._compiled_ns = 0
        self.account = Account(self.emit, lambda: self.ring.end, lambda: self.watcher.callers_ns)
        self.watcher = Watcher(self.emit, self._watched)
        self.metrics = Metrics(self.emit)
        self.capturer = Capturer(self._captured)
        self._probers: dict[int, Prober] = {}
        self._append = self.ring.append
        self._lock = threading.RLock()
        self._open: list[Announcement] = []
        self._unannounced = [Announcement(_program_name(), None, None)]
        _living.add(self)

    def emit(self, event: Event) -> None:
        """Takes one event: one append."""
        if self._unannounced or self.account.sampling:
            self._emit_slowly(event)
            return
        self._append(event)
        if type(event) is Step:
            self.last_step = event.step

    def _emit_slowly(self, event: Event) -> None:
        """Takes an event and how long that takes; the run's own first event comes before."""
        if self._unannounced:
            self._announce()
        began = time.perf_counter_ns()
        self._append(event)
        if type(event) is Step:
            self.last_step = event.step
        self.account.emitted(time.perf_counter_ns() - began)

    def watch(self, strategy: int, step: int, time_ns: int, result: jax.Array) -> None:
        """May follow `result`, one output of `step`, until it is ready.

        Args:
          strategy: number of the strategy.
          step: number of the step.
          time_ns: monotonic time at which the step was called.
          result: one output, sharded or replicated over the replicas' devices.
        """
        timed = self.account.sampling and not self.watcher.listening
        began = time.perf_counter_ns() if timed else 0
        # A step whose program had to be compiled first was handed over after that.
        time_ns = max(time_ns, self._compiled_ns)
        self.watcher.watch(strategy, step, time_ns, result)
        capture = self.capturer.running
        if capture is not None:
            capture.see(strategy, time_ns, result)
        if began:
            self.account.watched(time.perf_counter_ns() - began)

    def compiled(self, event: Callable[..., Event], program: Any) -> None:
        """Reads what is inside a compiled program and emits its event.

        Args:
          event: makes the event from `collectives`, `flops`, `bytes_accessed`,
            `temp_bytes`, `argument_bytes`, `output_bytes` and `peak_bytes`.
          program: a `jax.stages.Compiled`, or a list of them for a ragged step.
        """
        self._compiled_ns = time.monotonic_ns()
        several = isinstance(program, list | tuple)
        contents = read_programs(program) if several else read_program(program)
        made = event(**contents._asdict())
        if isinstance(made, Compile):
            self.watcher.compiled(made.strategy)
        self.emit(made)

    def open(
        self, name: str, total_steps: int | None, writer: Writer | None, *, probe: bool
    ) -> Announcement:
        """Begins a recording: its `Run` event comes first, when something happens.

        Args:
          name: the run's name.
          total_steps: steps the run means to take, None when it did not say.
          writer: the run file to begin, None for the ring alone.
          probe: whether to take short captures now and then.

        Returns:
          What to `close`.
        """
        opened = Announcement(name, total_steps, writer, self.ring.end)
        with self._lock:
            # The new run speaks for the process from here on.
            self._unannounced = [a for a in self._unannounced if a.writer is not None]
            self._unannounced.append(opened)
            self._open.append(opened)
            if probe:
                self._probers[id(opened)] = Prober(self.capturer, lambda: self.last_step)
        if jax_internals.backend_started():
            self._announce()
        return opened

    def close(self, opened: Announcement, end: RunEnd) -> None:
        """Ends a recording, after what is still being waited for has arrived.

        Args:
          opened: what `open` gave.
          end: its last event.
        """
        prober = self._probers.pop(id(opened), None)
        if prober is not None:
            prober.stop()
        self.metrics.flush()
        self.capturer.finish(_CAPTURE_SECONDS)
        self.watcher.flush()
        self.account.tell(self.last_step)
        self._announce()
        if opened.writer is not None:
            self._advise(opened)
        with self._lock:
            self._open.remove(opened)
            if opened in self._unannounced:
                self._unannounced.remove(opened)
        if opened.writer is not None:
            opened.writer.close(end)
        self._append(end)

    def _advise(self, opened: Announcement) -> None:
        """Emits what the run could do better, as far as the ring still knows it."""
        now_ns = time.monotonic_ns()
        try:
            for found in advise(self.ring, opened.cursor):
                self.emit(msgspec.structs.replace(found, time_ns=now_ns))
        except Exception as error:  # noqa: BLE001 - a recording ends in any case
            self.emit(
                Error(
                    time_ns=now_ns,
                    where="advice",
                    type=type(error).__name__,
                    message=str(error)[:2_000],
                )
            )

    def _announce(self) -> None:
        """Emits the `Run` events that are due, again for those that lacked devices."""
        started = jax_internals.backend_started()
        with self._lock:
            due = [one for one in self._unannounced if started or not one.made]
            for one in due:
                one.made = True
            if started:
                self._unannounced = []
            for one in due:
                run = _run_event(one.name, one.total_steps, started)
                if one.writer is not None:
                    one.writer.announce(run)
                self._append(run)

    def _watched(self) -> None:
        """Called by the watcher's thread after each window."""
        self.account.used("watcher")
        self.account.tell(self.last_step)

    def stored(self, *, waiting: int, lost: int) -> None:
        """Called by a writer's thread after it stored what there was.

        Args:
          waiting: events that were not stored.
          lost: events that could not be stored, in all.
        """
        self.account.used("writer")
        self.account.store(waiting=waiting, lost=lost)
        self.account.tell(self.last_step)

    def _captured(self, event: Event) -> None:
        """Takes what a capture found; the watcher's times get better by it."""
        if isinstance(event, Capture):
            self.watcher.profiled(event)
            self.account.captured(event.cost_ns)
        self.emit(event)

    def after_fork(self) -> None:
        """Leaves a forked child with a ring of its own past and nothing that writes."""
        self._lock = threading.RLock()
        self.ring.after_fork()
        for opened in self._open:
            if opened.writer is not None:
                opened.writer.abandon()
        self._open = []
        self._unannounced = []
        self.account = Account(self.emit, lambda: self.ring.end, lambda: self.watcher.callers_ns)
        self.watcher = Watcher(self.emit, self._watched)
        self.metrics = Metrics(self.emit)
        self.capturer = Capturer(self._captured)
        self._probers = {}
        jax_internals.free_profiler_after_fork()


def make_default() -> sink.Recorder:
    """Returns the recorder used when nobody installed one.

    It keeps the last events in memory; with `DISTLAB_RECORD=off` in the
    environment it is the null recorder.
    """
    if os.environ.get("DISTLAB_RECORD", "").lower() in {"off", "0", "false"}:
        return sink.NULL
    return RingRecorder()


def _after_fork() -> None:
    for recorder in list(_living):
        recorder.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _program_name() -> str:
    return Path(sys.argv[0]).stem if sys.argv and sys.argv[0] else "session"


def _run_event(name: str, total_steps: int | None, started: bool) -> Run:
    """Makes the first event; without devices while JAX has not started them."""
    return Run(
        time_ns=time.monotonic_ns(),
        unix_ns=time.time_ns(),
        name=name,
        process=os.getpid(),
        host=socket.gethostname(),
        platform=jax.default_backend() if started else "",
        devices=[selection.describe(d) for d in jax.local_devices()] if started else [],
        versions=_versions(),
        total_steps=total_steps,
    )


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0], "jax": jax.__version__}
    for package in ("jaxlib", "distlab"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
