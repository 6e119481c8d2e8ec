"""`distlab.record`: stores the run from here on in a folder."""

from __future__ import annotations

import atexit
import os
import threading
import time
import warnings
from asyncio import CancelledError  # what Ctrl-C raises in a coroutine
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, get_args

from distlab.control import loops
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    NotFiniteWarning,
    RecordError,
)
from distlab.events import Capture, RunEnd, sink
from distlab.recording.config import checked_config
from distlab.recording.logged import LARGEST, checked_name, checked_step, step_and_values
from distlab.recording.logger_thread import LoggerThread, checked_loggers
from distlab.recording.participant import Participant, open_run_file, present
from distlab.recording.recorder import Announcement, RingRecorder
from distlab.recording.writer import Writer
from distlab.text.counts import is_count, is_number, is_positive_count
from distlab.text.flags import flag_refusal
from distlab.text.paths import at_home, path_refusal
from distlab.text.shown import shown, shown_text
from distlab.tracking.logger import Logger
from distlab.tracking.tensorboard import TensorBoard
from distlab.user_code import calling_line

_Status: TypeAlias = Literal["finished", "stopped", "failed", "interrupted"]


class Recording:
    """A recording that goes on until it is closed; returned by `record`.

    Attributes:
      path: The run's folder, None when nothing is stored.
      name: The run's name.

    Example:
      >>> import distlab as dl
      >>> recording = dl.record("runs/first")
      >>> recording.log(0, loss=0.5)
      >>> recording.close()
      >>> recording.name, dl.Run.open("runs/first").summary()["metrics"]
      ('first', {'loss': 0.5})
    """

    def __init__(
        self,
        recorder: RingRecorder | None,
        path: Path | None,
        name: str,
        opened: Announcement | None,
    ) -> None:
        self.path = path
        self.name = name
        self._recorder = recorder
        self._opened = opened
        self._stops_before = loops.stops()
        self._stopped = False
        self._not_finite: set[str] = set()
        self._warned_unread = False
        self._calls = 0
        self._process = os.getpid()
        atexit.register(self._close_at_exit)

    @property
    def stopped(self) -> bool:
        """True once loops over `distlab.controlled` were stopped, on a page or in a view.

        Of several workers it becomes True for all before the same element.

        Example:
          >>> import distlab as dl
          >>> with dl.record("runs/first") as run:
          ...     for epoch in range(3):
          ...         for number in dl.controlled(range(100)):
          ...             pass
          ...         if run.stopped:
          ...             break
          >>> run.stopped
          False
        """
        return self._stopped or (self._opened is not None and loops.stops() > self._stops_before)

    def log(self, step_or_values: Any = None, /, **values: Any) -> None:
        """Logs numbers, such as a loss: `log(loss=loss)`, `log(7, loss=loss)`.

        `log({"train/loss": loss}, step=7)`, as loggers have it, does the same for names of any
        kind.

        Never waits: a value that JAX is still computing is stored when it is
        ready, with the time and the step of this call.

        Args:
          step_or_values: The step they belong to, by default the last one that `run` dispatched:
            a whole number, or an array or variable that holds one. Where a coordinator's
            workers are other processes, the functions that they have done count as steps; with
            `observe="programs"`, the calls of `log` do. Or a dict of values.
          **values: Name to Python number, NumPy scalar or JAX array of shape (); `step` is the
            step.

        Raises:
          ValueShapeError: A value is not one real number, such as a dict or a list.
          ArgumentTypeError: The step is not a whole number, or a name of a dict is no text.
          ArgumentValueError: The step is negative or above 2**63 - 1, or a name is empty, longer
            than 500 characters or not encodable in UTF-8.
          DonatedError: A value or the step was deleted or donated to an earlier call.
          RecordError: The recording is closed, or that of a process of which this one was forked.

        Warns:
          NotFiniteWarning: A metric was nan or infinite for the first time. A value that was not
            computed yet is reported at the next call, or when the recording is closed.
          RuntimeWarning: A value or step of an earlier call could not be read, for the first time:
            it was deleted meanwhile, its computation failed, or the step was negative.

        Example:
          >>> import jax.numpy as jnp
          >>> import distlab as dl
          >>> with dl.record("runs/first") as recording:
          ...     recording.log(7, loss=0.5, accuracy=jnp.mean(jnp.array([1.0, 0.0])))
          >>> metric = next(dl.Run.open("runs/first").events("metric"))
          >>> metric.step, metric.values
          (7, {'loss': 0.5, 'accuracy': 0.5})
        """
        if self._recorder is None:
            return
        if self._opened is None:
            raise RecordError(
                f"A recording accepts numbers until it is closed, and {self.name!r} is closed. "
                "Call log inside the with block."
            )
        self._require_own()
        began = time.perf_counter_ns()
        line = calling_line()
        step, numbers = step_and_values(step_or_values, values)
        number = self._newest_step(self._recorder) if step is None else checked_step(step)
        self._recorder.metrics.log(number, numbers)
        self._recorder.overhead.add_log(time.perf_counter_ns() - began, line)
        self._warn_of_values(self._recorder)

    def _newest_step(self, recorder: RingRecorder) -> int:
        """Returns the step of values without one; that of the call where steps are not counted."""
        number = recorder.newest_step()
        if number < 0 and self._opened is not None and self._opened.observe == "programs":
            number, self._calls = self._calls, self._calls + 1
        return number

    def capture(self, steps: int = 5, *, seconds: float = 10.0) -> Future[Capture]:
        """Takes a short profile of the next steps, and returns without waiting for them.

        The activity of each device (computing, waiting for others in a collective,
        copying, idle) becomes one `capture` event of the run. Steps go on
        meanwhile; those that are captured take somewhat longer. When the recorder is
        taking a profile of its own, that one is ended first, which takes some
        milliseconds.

        Of several processes each captures its own devices. Where all of them call it before
        the same step, one picture shows all devices.

        Args:
          steps: Number of steps to capture.
          seconds: The longest wait for them; the event covers the steps until then.

        Returns:
          A future: its `result(timeout)` waits for the event, or raises
          `CaptureError` when no step was run or the profile can't be read.

        Raises:
          CaptureError: jax.profiler or another capture is taking a profile, or the
            recorder's own did not end within 10 s.
          ArgumentValueError: `steps` or `seconds` is not a positive number.
          RecordError: The recording is closed, or that of a process of which this one was forked,
            or recording is off.

        Example:
          >>> import jax, jax.numpy as jnp
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> with dl.record(None) as recording:
          ...     capture = recording.capture(steps=2)
          ...     for _ in range(2):
          ...         total = strategy.run(lambda: jnp.ones((50, 50)) @ jnp.ones((50, 50)))
          ...     event = capture.result(timeout=60)
          >>> event.steps, event.devices
          (2, ['CPU:0', 'CPU:1'])
        """
        if not is_positive_count(steps, LARGEST):
            raise ArgumentValueError(
                f"steps must be a whole number of steps, at least 1, got {shown(steps)}. Leave it "
                "out for 5."
            )
        if not is_number(seconds) or not 0 < seconds <= threading.TIMEOUT_MAX:
            raise ArgumentValueError(
                f"seconds must be a positive number, got {shown(seconds)}. Leave it out for 10."
            )
        if self._recorder is None:
            raise RecordError(
                "A capture is part of a recording, and recording is off (DISTLAB_RECORD=off). "
                "Unset it."
            )
        if self._opened is None:
            raise RecordError(
                f"A recording can capture until it is closed, and {self.name!r} is closed. "
                "Call capture inside the with block."
            )
        self._require_own()
        return self._recorder.capturer.start(steps, float(seconds), "user")

    def close(
        self,
        status: _Status | None = None,
        message: str = "",
    ) -> None:
        """Stores the last events and ends the recording. Closing twice does nothing.

        An interrupt ends it all the same: what is stored by then is a finished run. In a forked
        child it does nothing: the run is that of the parent, and goes on.

        Args:
          status: How the run ended, by default `"finished"`, or `"stopped"` if it was.
          message: The error's text, empty when there was none.

        Raises:
          ArgumentValueError: `status` is none of these, or `message` is not a string.

        Example:
          >>> import distlab as dl
          >>> recording = dl.record("runs/first")
          >>> recording.close("failed", "loss is nan")
          >>> summary = dl.Run.open("runs/first").summary()
          >>> summary["status"], summary["message"]
          ('failed', 'loss is nan')
        """
        self._stopped = self.stopped
        status = status or ("stopped" if self._stopped else "finished")
        given: tuple[Any, Any] = status, message
        if not all(isinstance(text, str) for text in given) or status not in get_args(_Status):
            raise ArgumentValueError(
                f"A recording ends as {', '.join(get_args(_Status))} with a message, got "
                f"{shown(status)} and {shown(message)}. Leave them out for a run that went well."
            )
        atexit.unregister(self._close_at_exit)
        opened, self._opened = self._opened, None
        if opened is None or self._recorder is None or os.getpid() != self._process:
            return
        text = message[:2_000].encode("utf-8", "backslashreplace").decode()
        end = RunEnd(time_ns=time.monotonic_ns(), status=status, message=text)
        try:
            self._recorder.close(opened, end)
        except BaseException:  # who interrupts this can close once more
            self._opened = opened
            atexit.register(self._close_at_exit)
            raise
        self._warn_of_values(self._recorder)

    def __enter__(self) -> Self:
        """Returns itself."""
        if self._recorder is not None and self._opened is None:
            raise RecordError(
                f"A recording that was closed records no more, and {self.name!r} is closed. Call "
                "record again, with another folder or overwrite=True."
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        end: tuple[_Status | None, str]
        if error is None or (isinstance(error, SystemExit) and not error.code):
            end = None, ""
        elif isinstance(error, KeyboardInterrupt | GeneratorExit | CancelledError):
            end = "interrupted", type(error).__name__
        else:
            end = "failed", f"{type(error).__name__}: {shown_text(error)}"
        try:
            self.close(*end)
        except KeyboardInterrupt:  # after it nobody has the recording, to close it once more
            self.close(*end)
            raise

    def _require_own(self) -> None:
        if os.getpid() != self._process:
            raise RecordError(
                f"The recording {self.name!r} is that of process {self._process}, of which this "
                "one was forked: nothing would be stored. Call it there, with what this one "
                "returns, or record to a folder of its own here."
            )

    def _warn_of_values(self, recorder: RingRecorder) -> None:
        """Warns, once for each metric and once of a lost value, who called `log` or `close`."""
        reason, not_finite = recorder.metrics.take_warnings()
        if reason and not self._warned_unread:
            self._warned_unread = True
            warnings.warn(reason, RuntimeWarning, stacklevel=3)
        for name, (step, value) in not_finite.items():
            if name in self._not_finite:
                continue
            self._not_finite.add(name)
            warnings.warn(
                f"The metric {name!r} is {value} at step {step}. If it stands for no value, as "
                "between evaluations, leave the metric out of that call. If it was computed, a "
                "replica's part of a batch may be empty, and has no mean: divide a sum by the "
                "size of the global batch, as distlab.nn.compute_average_loss does, and reduce "
                'with SUM. Otherwise jax.config.update("jax_debug_nans", True) names the '
                "operation.",
                NotFiniteWarning,
                stacklevel=3,
            )

    def _close_at_exit(self) -> None:
        self.close("interrupted", "The interpreter ended before the recording was closed.")


def record(
    path: str | os.PathLike[str] | None,
    *,
    name: str | None = None,
    total_steps: int | None = None,
    config: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    probe: bool = True,
    tensorboard: str | os.PathLike[str] | None = None,
    loggers: Iterable[Logger] = (),
    observe: Literal["programs"] | None = None,
) -> Recording:
    """Records all events from here on to a run folder, until it is closed.

    Strategies, variables and compiled programs that were made before and still
    exist are part of it. Use it as a context manager; the run ends as
    failed when an exception leaves the block, and as interrupted on Ctrl-C.
    Recordings may overlap: each stores all events.

    In a program of several processes each of them calls `record` with the same folder, after
    its `MultiWorkerMirroredStrategy` was made: each has a file there, and all are one run.

    Nothing is stored where the environment variable `DISTLAB_RECORD` is `off`.

    Args:
      path: The run's folder, created when missing. None stores nothing: the
        last events stay in memory, as they do without any recording.
      name: The run's name, by default the name of its folder.
      total_steps: Steps that the run is meant to take, for progress and time left.
      config: Settings to show, compare and export with the run, such as `vars(args)`. Those of a
        nest are named `model.layers`; what is neither number nor text is kept as it prints.
      overwrite: Whether a run that the folder already holds is replaced.
      probe: Whether to profile three steps early on and then now and then, which
        shows the device that makes the others wait. It takes about 1 % of the time,
        happens on CPU devices only, and leaves the profiler to you while you use it.
      tensorboard: A folder for TensorBoard's event files, written while the run goes on. Of
        several processes, each writes to a folder in it, `process-0` and so on.
      loggers: Loggers that receive the run while it goes on, each in a thread of its own; of
        several processes the first one's, or all where `logger.of_each_process` is true.
        `distlab.loggers` has those of MLflow and Weights & Biases, and the base of your own.
        None of them makes the training wait, or ends it; closing waits up to 30 s for them.
      observe: `"programs"` for programs of plain JAX without a change of their code: every
        program that JAX compiles from here on, with why and its contents, and on CPU devices the
        share of the time that each takes, from a profile now and then. Steps are not counted:
        `distlab.observe` does that.

    Returns:
      The recording: `log` numbers to it, and `close` it or leave its `with`.

    Raises:
      RecordError: A folder can't be created or written, or already holds a run, or worker 0
        did not begin the run.
      ArgumentTypeError: `path` is not a path, `name` is not a string, `config` is no mapping,
        `overwrite` or `probe` is not True or False, or `loggers` is not a list of loggers.
      ArgumentValueError: `path` is empty, it or `tensorboard` is a URL or not encodable in
        UTF-8, `name` can't be stored, `total_steps` is not a number of steps,
        `config` has more than 1,000 settings, or `observe` is something else.

    Warns:
      RuntimeWarning: Events can't be stored, as when the disk is full, or the folder was deleted
        meanwhile. They are counted as lost, and storing is tried again. Or a logger raised for
        the first time, or missed events.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with dl.record("runs/first", total_steps=3) as recording:
      ...     for step in range(3):
      ...         losses = strategy.run(lambda n: 0.5 / (n + 1), args=(step,))
      ...         recording.log(loss=strategy.reduce("MEAN", losses, axis=None))
      >>> with dl.Run.open("runs/first") as run:
      ...     [event.values["loss"] for event in run.events("metric")][:2]
      [0.5, 0.25]
    """
    recorder = sink.recorder()
    chosen = checked_loggers(loggers)
    folder = None if path is None else _checked_folder(path)
    if refusal := flag_refusal("overwrite", overwrite):
        raise ArgumentTypeError(refusal)
    if refusal := flag_refusal("probe", probe):
        raise ArgumentTypeError(refusal)
    if total_steps is not None and not is_count(total_steps, LARGEST):
        raise ArgumentValueError(
            "total_steps must be a whole number of steps, from 0 to 2**63 - 1, got "
            f"{shown(total_steps)}. Leave it out when it is not known."
        )
    settings = checked_config(config)
    if observe is not None and observe != "programs":
        raise ArgumentValueError(
            f'observe is "programs", got {shown(observe)}. Leave it out to record steps alone.'
        )
    if name is not None:
        called = checked_name(name, "A recording")
    else:
        called = _name_of(folder) if folder else "in memory"
    if not isinstance(recorder, RingRecorder):
        return Recording(None, None, called, None)
    sink.gather()  # what was counted before is no part of this run
    writer, participant = None, present()
    chosen = _of_process(chosen, tensorboard, participant)
    if folder is not None:
        process = recorder.ring.process
        file, participant = open_run_file(folder, called, overwrite=overwrite, process=process)
        writer = Writer(recorder.ring, file, recorder.note_stored)
    try:
        threads = [
            LoggerThread(recorder.ring, logger, folder, recorder.note_logged) for logger in chosen
        ]
        opened = Announcement(
            called,
            total_steps,
            settings,
            writer,
            threads,
            participant=participant,
            observe=observe or "steps",
        )
        recorder.open(opened, probe=probe and writer is not None)
        # The program may change its directory. Workers agree on the folder as it was named.
        return Recording(recorder, folder and folder.absolute(), called, opened)
    except BaseException:  # an interrupt, too: nobody else could close the file
        if writer is not None:
            writer.close(RunEnd(time_ns=time.monotonic_ns(), status="interrupted", message=""))
        raise


def _of_process(
    loggers: list[Logger], tensorboard: str | os.PathLike[str] | None, process: Participant
) -> list[Logger]:
    """Returns the loggers of this process, with the one for TensorBoard."""
    if process.index:
        loggers = [logger for logger in loggers if logger.of_each_process]
    if tensorboard is None:
        return loggers
    if process.count > 1:
        tensorboard = Path(tensorboard) / f"process-{process.index}"
    return [*loggers, TensorBoard(tensorboard)]


def _checked_folder(path: Any) -> Path:
    """Returns the folder to write to."""
    named = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(named, str):
        raise ArgumentTypeError(
            f"record needs the folder to write to, got a {type(path).__name__}: {shown(path)}. "
            'Write record("runs/first"), or None to keep events in memory only.'
        )
    if not named:
        raise ArgumentValueError(
            f"record needs the folder to write to, got {shown(named)}. Write "
            'record("runs/first"), or record(".") for the present folder.'
        )
    if refusal := path_refusal(named, "record"):
        raise ArgumentValueError(refusal)
    return Path(at_home(named))


def _name_of(folder: Path) -> str:
    """Returns a folder's own name, also of "." and of links."""
    try:
        name = folder.resolve().name
    except (OSError, RuntimeError):  # links that lead to one another: the file can't be made
        name = folder.name
    return os.fsencode(name).decode("utf-8", "replace")
