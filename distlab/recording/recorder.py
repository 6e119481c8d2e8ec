"""The recorder that the core emits to: it appends events to the ring, and no further."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

import jax
import msgspec

from distlab.advice import advise
from distlab.control import loops
from distlab.devices import jax_internals, selection
from distlab.errors import ArgumentValueError
from distlab.events import (
    Capture,
    ClockOffset,
    Closures,
    Compile,
    Error,
    Event,
    Run,
    RunEnd,
    Sharding,
    Step,
    sink,
)
from distlab.observing import every_program
from distlab.observing.meshes import mesh_on, strategy_of
from distlab.profiling.capture import Capturer
from distlab.profiling.prober import Prober
from distlab.profiling.sampler import Sampler
from distlab.profiling.watcher import Watcher
from distlab.programs.contents import read_program, read_programs
from distlab.recording.agreed_steps import agreed_steps
from distlab.recording.clocks import Clock, ClockWatch
from distlab.recording.config import Setting
from distlab.recording.logger_thread import LoggerThread, close_all
from distlab.recording.metrics import Metrics
from distlab.recording.overhead import Overhead
from distlab.recording.participant import Participant, present, watch_clock
from distlab.recording.ring import Ring
from distlab.recording.writer import Writer
from distlab.text.shown import shown

_CAPTURE_SECONDS: Final = 10.0
"""The longest wait of a recording's end for a capture that is being read."""

_WORK: Final = {Step, Sharding, Closures}
"""Kinds of events of which the first one after a recording begins the process's own run again."""

_living: weakref.WeakSet[RingRecorder] = weakref.WeakSet()


@dataclass(eq=False)
class Announcement:
    """A `Run` event that is emitted before the next event, and what else a recording holds.

    `cursor` and `first_step` are those of its begin.
    """

    name: str
    total_steps: int | None = None
    config: Mapping[str, Setting] = field(default_factory=dict)
    writer: Writer | None = None
    loggers: Sequence[LoggerThread] = ()
    cursor: int = 0
    first_step: int = 0
    participant: Participant | None = None
    made: bool = False
    observe: Literal["steps", "programs"] = "steps"
    prober: Prober | Sampler | None = None
    clock_watch: ClockWatch | None = None

    @property
    def readers(self) -> list[Writer | LoggerThread]:
        """The writers and loggers that begin with the event."""
        return [*([] if self.writer is None else [self.writer]), *self.loggers]


class RingRecorder:
    """Keeps events in a ring; run files and pages read them from there."""

    enabled = True

    def __init__(self, ring: Ring | None = None) -> None:
        self.ring = Ring() if ring is None else ring
        self.last_step = -1
        self._functions_done = 0
        self._last_on_devices = -1
        self._compiled_ns = 0
        self._append = self.ring.append
        self._begin()
        self._unannounced.append(Announcement(_program_name()))
        _living.add(self)

    def _begin(self) -> None:
        """Makes what has threads and locks, also in a forked child; no recording is open."""
        self.overhead = Overhead(self.emit, lambda: self.ring.end, lambda: self.watcher.callers_ns)
        self.watcher = Watcher(self.emit, self._watched)
        self.metrics = Metrics(self.emit)
        self.capturer = Capturer(self._captured)
        self._lock = threading.RLock()
        self._open: list[Announcement] = []
        self._is_between = False
        self._unannounced: list[Announcement] = []

    def emit(self, event: Event) -> None:
        """Appends one event to the ring; the run's own first event goes before."""
        if self._is_between and type(event) in _WORK:  # no part of the recording that has ended
            self._is_between = False
            self._unannounced.append(Announcement(_program_name()))
        if self._unannounced:
            self._announce()
        began = time.perf_counter_ns() if self.overhead.sampling else 0
        self._append(event)
        if type(event) is Step:
            self.last_step = event.step
        elif type(event) is Closures:
            self._functions_done += sum(worker.done for worker in event.active)
        if began:
            self.overhead.add_emit(time.perf_counter_ns() - began)

    def newest_step(self) -> int:
        """Returns the number of the last step, -1 before the first.

        Where a coordinator's workers take all steps, their functions count as steps.
        """
        if self.last_step >= 0:
            return self.last_step
        sink.gather()
        return self._functions_done - 1

    def watch(self, strategy: int, step: int, time_ns: int, result: jax.Array) -> None:
        """Watches `result`, one output of `step`, until it is ready, for some of the steps."""
        self._last_on_devices = step
        capture = self.capturer.running
        if capture is None and not self.watcher.listening:
            self.watcher.missed_step = True
            return
        # A step whose program had to be compiled first was dispatched after that.
        time_ns = max(time_ns, self._compiled_ns)
        try:
            self.watcher.watch(strategy, step, time_ns, result)
            if capture is not None:
                capture.see(strategy, step, time_ns, result)
        except RuntimeError:  # another thread deleted the result already
            return

    def compiled(
        self,
        event: Callable[..., Event],
        program: Any,
        notes: sink.ProgramNotes = sink.NO_NOTES,
    ) -> None:
        """Reads the collectives and costs of a compiled program and emits its event."""
        self._compiled_ns = time.monotonic_ns()
        several = isinstance(program, list | tuple)
        contents = read_programs(program) if several else read_program(program, notes)
        made = event(**contents._asdict())
        if isinstance(made, Compile):
            self.watcher.compiled(made.strategy)
        self.emit(made)

    def open(self, opened: Announcement, *, probe: bool) -> None:
        """Begins a recording, whose `Run` event is emitted before the next event."""
        opened.cursor, opened.first_step = self.ring.end, self.last_step + 1
        # Not under the lock: Python waits for a thread to start, and that thread may free a
        # variable first, which is an event.
        if probe and opened.observe == "programs":
            opened.prober = Sampler(self.capturer)
        elif probe:
            opened.prober = Prober(self.capturer, lambda: self._last_on_devices, agreed_steps())
        if opened.observe == "programs":
            every_program.begin()
            self.capturer.whatever_runs = self._all_devices
        if not self._open:
            loops.begin_anew()
        with self._lock:
            # From here on the new run takes the place of the process's own.
            self._unannounced = [a for a in self._unannounced if a.readers]
            self._unannounced.append(opened)
            self._open.append(opened)
            self._is_between = False
        try:
            if jax_internals.backend_started():
                self._announce()
            if opened.participant is not None:
                opened.clock_watch = watch_clock(opened.participant, self._note_clock)
        except BaseException:  # an interrupt: nobody else has it, to close it
            self._forget(opened)
            raise

    def close(self, opened: Announcement, end: RunEnd) -> None:
        """Ends a recording, after pending values and captures have been emitted."""
        try:
            self._collect(opened)
        finally:  # an interrupt ends the run, too
            self._release(opened, end)

    def _collect(self, opened: Announcement) -> None:
        """Emits what belongs to a recording and is still pending."""
        if opened.clock_watch is not None:
            opened.clock_watch.stop()
        if opened.prober is not None:
            opened.prober.stop()
        self.metrics.flush()
        sink.gather()
        self.capturer.finish(_CAPTURE_SECONDS)
        self.watcher.flush()
        sink.tell_all(opened.first_step)
        self.overhead.report()
        self._announce()
        # Of several processes each has a part of the run: who reads it advises on all parts.
        if opened.readers and (opened.participant is None or opened.participant.count == 1):
            self._advise(opened)

    def _release(self, opened: Announcement, end: RunEnd) -> None:
        """Ends a recording's loggers and its file."""
        self._forget(opened)
        try:
            close_all(opened.loggers, end)  # before the run file, which has what they failed to do
        finally:
            if opened.writer is not None:
                opened.writer.close(end)
        self._append(end)
        self._is_between = not self._open

    def _forget(self, opened: Announcement) -> None:
        """Takes a recording out of those that are open."""
        if opened.prober is not None:
            opened.prober.stop()
        with self._lock:
            observed = opened in self._open and opened.observe == "programs"
            for held in (self._open, self._unannounced):
                if opened in held:
                    held.remove(opened)
        if observed:
            every_program.end()
            if not any(one.observe == "programs" for one in self._open):
                self.capturer.whatever_runs = None
        if not self._open:
            loops.begin_anew()

    def _advise(self, opened: Announcement) -> None:
        """Emits the advice on the run, from those of its events that the ring still holds."""
        now_ns = time.monotonic_ns()
        try:
            for found in advise(self.ring, opened.cursor):
                self.emit(msgspec.structs.replace(found, time_ns=now_ns))
        except Exception as error:  # noqa: BLE001 - a recording ends in any case
            kind, message = type(error).__name__, str(error)[:2_000]
            self.emit(Error(time_ns=now_ns, where="advice", type=kind, message=message))

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
                participant = one.participant or present()
                self.ring.process = participant.index
                run = _run_event(one, participant, started)
                for reader in one.readers:
                    reader.announce(run)
                self._append(run)

    def _all_devices(self) -> tuple[int, list[jax.Device]]:
        """Returns the devices of profiles without steps, and the number of their mesh."""
        mesh = mesh_on(jax.local_devices())
        return strategy_of(mesh, self), list(mesh.devices)

    def _watched(self) -> None:
        """Reports overhead; the watcher's thread calls it after each window."""
        self.overhead.note_thread("watcher")
        self.overhead.report()

    def note_stored(self, *, waiting: int, lost: int) -> None:
        """Reports overhead; a writer's thread calls it after it stored events."""
        self.overhead.note_thread("writer")
        self.overhead.note_backlog(waiting=waiting, lost=lost)
        self.overhead.report()

    def _note_clock(self, clock: Clock) -> None:
        """Records how far this process's clock is from that of process 0 now."""
        now_ns = time.monotonic_ns()
        self.emit(ClockOffset(time_ns=now_ns, offset_ns=clock.offset_ns, error_ns=clock.error_ns))

    def note_logged(self) -> None:
        """Notes the processor time of a logger's thread; that thread calls it."""
        self.overhead.note_thread("writer")

    def _captured(self, event: Event) -> None:
        """Emits a capture, which also corrects the watcher's times."""
        if isinstance(event, Capture):
            self.watcher.profiled(event)
            self.overhead.add_capture(event.cost_ns)
        self.emit(event)

    def after_fork(self) -> None:
        """Gives a forked child new threads, and no open recording; the ring keeps its events."""
        self.ring.after_fork()
        for opened in self._open:
            if opened.writer is not None:
                opened.writer.file.abandon()
        self._begin()
        jax_internals.free_profiler_after_fork()


_ON: Final = ("", "on", "1", "true")
_OFF: Final = ("off", "0", "false")


def make_default() -> sink.Recorder:
    """Returns a `RingRecorder`; with `DISTLAB_RECORD=off` in the environment the null recorder."""
    asked = os.environ.get("DISTLAB_RECORD", "")
    if asked.lower() not in {*_ON, *_OFF}:
        raise ArgumentValueError(
            f"The environment variable DISTLAB_RECORD is on or off, got {shown(asked)}. Leave it "
            "out to record."
        )
    return sink.NULL if asked.lower() in _OFF else RingRecorder()


def _after_fork() -> None:
    for recorder in list(_living):
        recorder.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _program_name() -> str:
    """Returns the name of the script, the notebook or the package that runs."""
    program = Path(sys.argv[0] if sys.argv else "")
    match program.stem:
        case "ipykernel_launcher":  # Jupyter's server gives a kernel the name of its notebook
            return Path(os.environ.get("JPY_SESSION_NAME", "")).stem or "notebook"
        case "__main__":  # python -m
            return program.parent.name or "session"
        case "" | "-c" | "-m":
            return "session"
    return program.stem


def _run_event(announced: Announcement, participant: Participant, started: bool) -> Run:
    """Makes the first event; without devices while JAX has not started them."""
    return Run(
        time_ns=time.monotonic_ns(),
        unix_ns=time.time_ns(),
        name=announced.name,
        process=os.getpid(),
        host=socket.gethostname(),
        platform=jax.default_backend() if started else "",
        devices=[selection.describe(d) for d in jax.local_devices()] if started else [],
        versions=_versions(),
        total_steps=announced.total_steps,
        config=dict(announced.config),
        job=participant.job,
        task=participant.task,
        process_index=participant.index,
        processes=participant.count,
        generation=participant.generation,
        clock_offset_ns=participant.clock.offset_ns,
        clock_error_ns=participant.clock.error_ns,
        observe=announced.observe,
    )


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0], "jax": jax.__version__}
    for package in ("jaxlib", "distlab"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
