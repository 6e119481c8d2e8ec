"""A recorded run, read from its folder, finished or still being written."""

from __future__ import annotations

import os
import sqlite3
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, get_args

from distlab.advice import advise
from distlab.errors import ArgumentTypeError, ArgumentValueError, NewerRunWarning, NotARunError
from distlab.events import SCHEMA, Advice, AnyEvent, Chunk, Envelope, Event, Unknown, kind_of
from distlab.folds import Join
from distlab.runs.comparison import Comparison, compare_runs
from distlab.runs.damage import EXPORT_HOLDS_MORE, as_damage
from distlab.runs.exports import export
from distlab.runs.exports.frame import to_pandas
from distlab.runs.exports.tensorboard import to_tensorboard
from distlab.runs.programs import Programs, read_programs
from distlab.runs.run_file import run_files
from distlab.runs.run_file_reader import PAGE
from distlab.runs.run_files import RunReader, open_run_files
from distlab.runs.summary import Summary, summarize
from distlab.text.html import card
from distlab.text.paths import at_home, path_refusal
from distlab.text.shown import shown, shown_clause, shown_text

_FAR_NS: Final = 1 << 62
_FOLLOW_SECONDS: Final = 0.05
_NAMED: Final = 3
"""The most runs that a message names."""

_KINDS: Final = tuple(str(kind.__struct_config__.tag) for kind in get_args(AnyEvent))
_STANDING: Final = tuple(
    str(kind.__struct_config__.tag) for kind in get_args(AnyEvent) if kind.STANDING
)


class Run:
    """A recorded run, in the order in which it was recorded.

    Returned by `Run.open`. It may be used from several threads. Where a file is
    damaged, a `Lost` event stands for the part that can't be read. The events of
    several processes come in one order, on the clock of the first.

    Attributes:
      path: The run's folder.
      meta: The facts that the file of the first process states before its events:
        the `schema`'s number, the run's `name`, the number of the `process` and its
        `process_index`, its `host`, and when it began (`unix_ns`).

    Example:
      >>> import distlab as dl
      >>> with dl.record("runs/first") as recording:
      ...     for step in range(3):
      ...         recording.log(step, loss=1 / (step + 1))
      >>> with dl.Run.open("runs/first") as run:
      ...     print([event.values["loss"] for event in run.events("metric")])
      ...     print(run.summary()["status"], run.summary()["metrics"])
      [1.0, 0.5, 0.3333333333333333]
      finished {'loss': 0.3333333333333333}
    """

    def __init__(self, path: Path, reader: RunReader) -> None:
        self.path = path
        self.meta: dict[str, Any] = reader.meta
        self._reader = reader

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Opens a run folder for reading.

        Args:
          path: The folder passed to `distlab.record`.

        Raises:
          NotARunError: The folder does not hold a run, or one that can't be read.

        Warns:
          NewerRunWarning: A newer version of distlab recorded it.
          RuntimeWarning: What a killed process stored last can't be read, so it may be missing.

        Example:
          >>> import distlab as dl
          >>> dl.record("runs/first").close()
          >>> with dl.Run.open("runs/first") as run:
          ...     run.meta["name"], run.live
          ('first', False)
        """
        named: Any = os.fspath(path) if isinstance(path, os.PathLike) else path
        if not isinstance(named, str) or not named:
            raise NotARunError(
                f"A run is opened by its folder, got a {type(path).__name__}: {shown(path)}. Name "
                "the folder that was passed to record."
            )
        folder = Path(at_home(named))
        try:
            require_readable(folder)
            files = run_files(folder) if folder.is_dir() else []
            for file in files:
                require_readable(file)
            if not files:
                if refusal := path_refusal(named, "A run"):
                    raise NotARunError(refusal)
                raise NotARunError(
                    f"A run is a folder that distlab.record wrote, and {folder} "
                    f"{_fault_of(folder)}. Name the folder that was passed to record."
                )
            run = cls(folder, open_run_files(files))
        except NotARunError:
            raise
        except (sqlite3.Error, OSError, ValueError) as error:
            raise NotARunError(
                f"The run in {folder} can't be read: {shown_clause(error)}. "
                "Its file is damaged, or was not written by distlab: record it again."
            ) from error
        if run.meta.get("schema", SCHEMA) > SCHEMA:
            warnings.warn(
                f"The run in {folder} was recorded by a newer distlab (schema "
                f"{run.meta['schema']}; this one knows {SCHEMA}), so parts of it may be missing "
                "or wrong. Update distlab.",
                NewerRunWarning,
                stacklevel=2,
            )
        return run

    @property
    def live(self) -> bool:
        """True while a process that records it is alive and has not closed it."""
        return self._reader.live

    @property
    def processes(self) -> tuple[int, ...]:
        """Indices of the processes that recorded it, as `jax.process_index()` numbers them."""
        return self._reader.processes

    @property
    def living(self) -> frozenset[int]:
        """Indices of the processes that are alive and have not closed their files."""
        return self._reader.living

    @property
    def seconds(self) -> float | None:
        """Seconds from the earliest to the newest stored event; None in files of schema 1.

        Raises:
          RecordError: The run was closed.
        """
        ends = self._reader.ends()
        return None if ends is None else (ends[1] - ends[0]) / 1e9

    def since(self, cursor: int, limit: int = PAGE) -> Chunk:
        """Returns up to `limit` events from `cursor` on, at once (never waits).

        Args:
          cursor: Sequence number to begin with, 0 for the first event.
          limit: The most events to return.

        Returns:
          The events and the next cursor; no events while there is nothing new.

        Raises:
          RecordError: The run was closed.

        Example:
          >>> import distlab as dl
          >>> with dl.record("runs/first") as recording:
          ...     recording.log(0, loss=0.5)
          >>> run, cursor = dl.Run.open("runs/first"), 0
          >>> while (chunk := run.since(cursor, limit=100)).events:
          ...     cursor = chunk.cursor
          >>> chunk.events, chunk.cursor == cursor
          ([], True)
          >>> run.close()
        """
        return self._reader.since(cursor, limit)

    def events(
        self,
        kind: str | None = None,
        *,
        start: float | None = None,
        end: float | None = None,
    ) -> Iterator[Event | Unknown]:
        """Yields the events stored so far, in the order in which they were recorded.

        Args:
          kind: Only this kind, as run files spell it, such as `"step_ready"`.
          start: Only from here on, in seconds since the run's first event.
          end: Only events before this, in seconds since the run's first event.

        Raises:
          ArgumentValueError: There is no such kind.
          RecordError: The run was closed.

        Example:
          >>> import distlab as dl
          >>> with dl.record("runs/first") as recording:
          ...     recording.log(0, loss=0.5)
          >>> with dl.Run.open("runs/first") as run:
          ...     print([(event.step, event.values) for event in run.events("metric")])
          ...     print(list(run.events("metric", start=3600.0)))
          [(0, {'loss': 0.5})]
          []
        """
        known = _is_known(kind)
        if start is None and end is None:
            pages = self._reader.pages(kind)
        else:
            found = self._reader.between(*self._times(start, end), (kind,))
            pages = ([envelope.event for envelope in page] for page in found)
        for page in pages:
            known = True
            yield from page
        if not known:
            raise _no_such_kind(kind)

    def between(
        self, low_ns: int, high_ns: int, *, before: int | None = None, standing: bool = False
    ) -> Iterator[list[Event | Unknown]]:
        """Yields the events of a range of time, some hundreds at a time, in their order.

        Args:
          low_ns: The first nanosecond, by the run's own clock (`Event.time_ns`).
          high_ns: The first nanosecond after the range.
          before: Only events with lower sequence numbers; None for all.
          standing: Only kinds that later events refer to.

        Raises:
          RecordError: The run was closed.
        """
        pages = self.envelopes_between(low_ns, high_ns, before=before, standing=standing)
        return ([envelope.event for envelope in page] for page in pages)

    def envelopes_between(
        self, low_ns: int, high_ns: int, *, before: int | None = None, standing: bool = False
    ) -> Iterator[list[Envelope]]:
        """Yields the events of `between`, each with the process it came from."""
        kinds: tuple[str | None, ...] = _STANDING if standing else (None,)
        return self._reader.between(low_ns, high_ns, kinds, before)

    def follow(
        self, kind: str | None = None, *, idle_seconds: float | None = None
    ) -> Iterator[Event | Unknown]:
        """Yields the events, and goes on with those that are still to come.

        Ends when the run is finished or its process has died, and when no event
        arrived for `idle_seconds`.

        Args:
          kind: Only this kind.
          idle_seconds: The longest wait for the next event; None waits as long as
            the run goes on.

        Raises:
          ArgumentValueError: There is no such kind.
          RecordError: The run was closed.

        Example:
          >>> import distlab as dl
          >>> recording = dl.record("runs/first")
          >>> recording.log(0, loss=0.5)
          >>> with dl.Run.open("runs/first") as run:  # the run is still being recorded
          ...     next(run.follow("metric")).values
          {'loss': 0.5}
          >>> recording.close()
        """
        known = _is_known(kind)
        cursor, newest = 0, time.monotonic()
        while True:
            live = self.live
            chunk = self.since(cursor)
            cursor = chunk.cursor
            of_kind = [e for e in chunk.events if kind is None or kind_of(e) == kind]
            known = known or bool(of_kind)
            yield from of_kind
            if chunk.events:
                newest = time.monotonic()
            elif not live or (
                idle_seconds is not None and time.monotonic() - newest > idle_seconds
            ):
                if not known:
                    raise _no_such_kind(kind)
                return
            else:
                time.sleep(_FOLLOW_SECONDS)

    def _times(self, start: float | None, end: float | None) -> tuple[int, int]:
        first_ns = next((e.time_ns for e in self.events("run")), None)
        if first_ns is None:
            first_ns = next((e.time_ns for e in self.events()), 0)
        low_ns = first_ns + round(start * 1e9) if start is not None else -_FAR_NS
        return low_ns, first_ns + round(end * 1e9) if end is not None else _FAR_NS

    def summary(self) -> Summary:
        """Returns the run's main facts, for a table of runs.

        Returns:
          A dictionary with the keys of `distlab.runs.summary.Summary`: its name, status,
          times, devices, strategies, steps, examples, last metrics and others.

        Example:
          >>> import distlab as dl
          >>> with dl.record("runs/first", total_steps=10) as recording:
          ...     recording.log(0, loss=0.5)
          >>> with dl.Run.open("runs/first") as run:
          ...     summary = run.summary()
          >>> summary["name"], summary["status"], summary["total_steps"], summary["metrics"]
          ('first', 'finished', 10, {'loss': 0.5})
        """
        with as_damage(self.path, "summed up", EXPORT_HOLDS_MORE):
            return summarize(self, *self._reader.totals(), self._reader.step_ends())

    def advice(self) -> list[Advice]:
        """Returns possible improvements of the run; see `distlab.advice.advise`.

        Returns:
          The findings, the most expensive first; empty when there are none.

        Raises:
          NotARunError: The run is damaged in a way that can't be passed over.
          RecordError: The run was closed.

        Example:
          >>> import distlab as dl
          >>> dl.record("runs/first").close()
          >>> with dl.Run.open("runs/first") as run:
          ...     [f"{one.cause}: {one.remedy}" for one in run.advice()]
          []
        """
        with as_damage(self.path, "advised on", EXPORT_HOLDS_MORE):
            return advise(self)

    def compare(self, *others: Run) -> Comparison:
        """Compares this run with others: what differs in configuration, and their numbers.

        Args:
          *others: The other runs, one or more.

        Returns:
          The runs side by side: text when it is printed, tables in a notebook.

        Raises:
          ArgumentTypeError: One of `others` is no run.
          NotARunError: One of the runs is damaged in a way that can't be passed over.
          RecordError: One of the runs was closed.

        Example:
          >>> import distlab as dl
          >>> for name, rate in (("first", 0.1), ("second", 0.2)):
          ...     with dl.record(f"runs/{name}", config={"learning_rate": rate}) as recording:
          ...         recording.log(0, loss=0.5)
          >>> with dl.Run.open("runs/first") as run, dl.Run.open("runs/second") as other:
          ...     print(run.compare(other))
                                 first         second
          learning_rate          0.1           0.2
          ...
        """
        for other in others or (None,):
            if not isinstance(other, Run):
                raise ArgumentTypeError(
                    f"A run is compared with other runs, got {shown(other)}. Open it first: "
                    'run.compare(dl.Run.open("runs/second")).'
                )
        paths = ", ".join(str(other.path) for other in others)
        with as_damage(self.path, f"compared with the one in {paths}", EXPORT_HOLDS_MORE):
            return compare_runs(self, *others)

    def programs(self) -> Programs:
        """Returns the compiled programs: the cause, contents and devices of each.

        Returns:
          A sequence of `Program`, the oldest first; in notebooks a table.

        Raises:
          RecordError: The run was closed.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> def square(x):
          ...     return x * x
          >>> with dl.record("runs/first"):
          ...     squares = strategy.run(square, args=(3.0,))
          >>> with dl.Run.open("runs/first") as run:
          ...     [(one.function, one.cause, one.steps) for one in run.programs()][-1]
          ('square', 'new function', 1)
        """
        with as_damage(self.path, "searched for its programs", EXPORT_HOLDS_MORE):
            return read_programs(self.events if len(self.processes) < 2 else self._joined)

    def _joined(self, kind: str) -> Iterator[Event]:
        """Yields the events of a kind as one process with all replicas would have emitted them."""
        join, cursor = Join(), 0
        while (chunk := self.since(cursor)).events:
            cursor = chunk.cursor
            known = [one for one in chunk.envelopes() if isinstance(one.event, Event)]
            yield from (e for e in join.add(known) if e.__struct_config__.tag == kind)

    def to_pandas(self, kind: str) -> Any:
        """Returns the events of one kind as a pandas table.

        Args:
          kind: As run files spell it, such as `"step"`; docs/events.md lists
            them with their fields.

        Returns:
          A `pandas.DataFrame` with a row for each event and a column for each
          field, `time_ns` first; in a run of several processes also `process_index`.

        Raises:
          ArgumentValueError: There is no such kind.
          MissingExtraError: pandas is not installed.
          RecordError: The run was closed.

        Example:
          >>> import distlab as dl
          >>> with dl.record("runs/first") as recording:
          ...     recording.log(0, loss=0.5)
          >>> with dl.Run.open("runs/first") as run:
          ...     table = run.to_pandas("metric")
          >>> list(table.columns), table["values"][0]
          (['time_ns', 'step', 'values'], {'loss': 0.5})
        """
        return to_pandas(self, kind)

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        start: float | None = None,
        end: float | None = None,
        overwrite: bool = False,
    ) -> Path:
        """Writes the run to a file for other tools.

        Args:
          path: The file; its suffix selects the format. `.html`: the dashboard's
            page, which opens without a server. `.json`: a timeline
            that Perfetto (ui.perfetto.dev) and Chrome open, with a track for
            the Python calls, one for the input, and one for each replica's
            device; `.json.gz`: the same, compressed. `.jsonl`: one event a line, after
            a line about the file. `.parquet`: the same, one event a row (needs pyarrow).
          start: The begin of the timeline's part to write, in seconds since the first event.
          end: Its end.
          overwrite: Whether an existing file may be replaced.

        Returns:
          The file.

        Raises:
          ArgumentValueError: The suffix is not one of those, or that of no timeline, and a part
            is wanted.
          MissingExtraError: pyarrow, or the dashboard, is needed and not installed.
          RecordError: The file exists or can't be written, or the run was closed.
          NotARunError: The run is damaged in a way that the format can't pass over.

        Example:
          >>> import json
          >>> import distlab as dl
          >>> with dl.record("runs/first") as recording:
          ...     recording.log(0, loss=0.5)
          >>> with dl.Run.open("runs/first") as run:
          ...     lines = run.export("events.jsonl").read_text().splitlines()
          >>> [json.loads(line)["values"] for line in lines if '"metric"' in line]
          [{'loss': 0.5}]
        """
        return export(self, path, start=start, end=end, overwrite=overwrite)

    def to_tensorboard(self, logdir: str | os.PathLike[str]) -> Path:
        """Writes the run for TensorBoard: `tensorboard --logdir logs` shows it.

        Scalars are what was logged, and once a second distlab's own figures: steps and examples
        per second, waiting for input, and each device's busy share. Advice, errors and
        what was compiled are texts. Some batches are images, one for each replica. The same as
        `dl.record(..., tensorboard=logdir)` writes while the run goes on.

        Args:
          logdir: The folder for the event file, created when missing. A run of several
            processes has a folder within it for each.

        Returns:
          The folder.

        Raises:
          ArgumentValueError: `logdir` is a URL.
          RecordError: The folder can't be written, or the run was closed.
          NotARunError: The run is damaged in a way that can't be passed over.

        Example:
          >>> import distlab as dl
          >>> with dl.record("runs/first") as recording:
          ...     recording.log(0, loss=0.5)
          >>> with dl.Run.open("runs/first") as run:
          ...     folder = run.to_tensorboard("logs/first")
          >>> [file.name.partition(".tfevents.")[0] for file in folder.iterdir()]
          ['events.out']
        """
        return to_tensorboard(self, logdir)

    def __repr__(self) -> str:
        """Names the run and its folder."""
        return f"<Run {self.meta.get('name', '')!r} in {self.path}>"

    def _repr_html_(self) -> str:
        """Shows the run's main facts and its advice in notebooks."""
        facts = self.summary()
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in facts["metrics"].items())
        try:
            advice = [f"{one.text} {one.remedy}" for one in self.advice()[:3]]
        except NotARunError as error:
            advice = [shown_text(error)]
        rows = [
            ["status", facts["status"]],
            ["strategies", ", ".join(dict.fromkeys(facts["strategies"])) or "none"],
            ["devices", str(len(facts["devices"]))],
            ["steps", f"{facts['steps']:,} in {facts['seconds']:.1f} s"],
            ["examples", f"{facts['examples']:,}"],
            ["last metrics", metrics or "none"],
            *([["no file of", ", ".join(facts["missing"])]] if facts["missing"] else []),
            *(["advice", text] for text in advice),
        ]
        return card(f"Run {facts['name']}", str(self.path), (), rows)

    def close(self) -> None:
        """Closes the run's files."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _is_known(kind: Any) -> bool:
    """Returns whether this version has a kind; a run of a newer one may have others."""
    if kind is not None and not isinstance(kind, str):
        raise _no_such_kind(kind)
    return kind is None or kind in _KINDS


def _no_such_kind(kind: Any) -> ArgumentValueError:
    return ArgumentValueError(
        f"kind must be one of {', '.join(_KINDS)}, or another one that the run has, got "
        f"{shown(kind)}. Leave it out for all events."
    )


def require_readable(path: Path) -> None:
    """Checks that a folder or file, if it is there, may be read."""
    try:
        enter = os.X_OK if path.is_dir() else 0
        refused = path.exists() and not os.access(path, os.R_OK | enter)
    except PermissionError:  # a folder above may not be entered
        refused = True
    if refused:
        raise NotARunError(
            f"{path} may not be read: permission denied. Ask its owner, or change its mode."
        )


def _fault_of(folder: Path) -> str:
    if folder.is_dir():
        runs = sorted(inner.name for inner in folder.iterdir() if run_files(inner))
        if not runs:
            return "holds no run file"
        others = " and others" if len(runs) > _NAMED else ""
        return f"holds no run file, but the runs {', '.join(map(shown, runs[:_NAMED]))}{others}"
    return "is a file" if folder.exists() else "does not exist"
