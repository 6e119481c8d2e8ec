"""A recorded run, read from its folder, finished or still being written."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, get_args

from distlab.advice import advise
from distlab.errors import ArgumentValueError, NotARunError
from distlab.events import Advice, AnyEvent, Chunk, Event, Unknown, kind_of
from distlab.runs.exports import export
from distlab.runs.exports.frame import to_pandas
from distlab.runs.programs import Programs, read_programs
from distlab.runs.run_file import PATTERN, being_written
from distlab.runs.stored import PAGE, StoredEvents
from distlab.runs.summary import summarize
from distlab.text.counts import is_count, is_number
from distlab.text.html import card

_FAR_NS: Final = 1 << 62
_FOLLOW_SECONDS: Final = 0.05
_STANDING: Final = tuple(
    str(kind.__struct_config__.tag) for kind in get_args(AnyEvent) if kind.STANDING
)


class Run:
    """A recorded run, in the order in which it was recorded.

    Made by `Run.open`. It may be used from several threads. Where the file is
    damaged, a `Lost` event stands for what can't be read.

    Attributes:
      path: the run's folder.
      meta: what the file knows before its first event: the `schema`'s number,
        the run's `name`, the `process`, its `host`, and when it began
        (`unix_ns`).
    """

    def __init__(self, path: Path, file: Path, stored: StoredEvents) -> None:
        self.path = path
        self.meta: dict[str, Any] = stored.meta
        self._file = file
        self._stored = stored

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Opens a run folder for reading.

        Args:
          path: the folder given to `distlab.record`.

        Raises:
          NotARunError: it does not hold a run, or one that can't be read.
        """
        if not isinstance(path, str | os.PathLike):
            raise NotARunError(
                f"A run is opened by its folder, got a {type(path).__name__}: {path!r:.80}. Name "
                "the folder that was given to record."
            )
        folder = Path(path)
        files = sorted(folder.glob(PATTERN)) if folder.is_dir() else []
        if not files:
            what = "holds none" if folder.is_dir() else "is none"
            what = what if folder.exists() else "does not exist"
            raise NotARunError(
                f"A run is a folder that distlab.record wrote, and {folder} {what}. "
                "Name the folder that was given to record."
            )
        try:
            return cls(folder, files[0], StoredEvents(files[0]))
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise NotARunError(
                f"The run in {folder} can't be read: {error}. "
                "Its file is damaged, or was not written by distlab."
            ) from error

    @property
    def live(self) -> bool:
        """True while the process that records it is alive and has not closed it."""
        return being_written(self._file)

    @property
    def seconds(self) -> float | None:
        """From the earliest to the newest stored event; None where a file does not keep that.

        Raises:
          RecordError: the run was closed.
        """
        ends = self._stored.ends()
        return None if ends is None else (ends[1] - ends[0]) / 1e9

    def since(self, cursor: int, limit: int = PAGE) -> Chunk:
        """Returns up to `limit` events from `cursor` on, at once (never waits).

        Args:
          cursor: sequence number to begin with, 0 for the first event.
          limit: the most events to give.

        Returns:
          The events and where to go on; none are given while there is nothing new.

        Raises:
          ArgumentValueError: the cursor is no sequence number.
          RecordError: the run was closed.
        """
        if not is_count(cursor):
            raise ArgumentValueError(
                f"cursor must be a sequence number, from 0, got {cursor!r:.80}. Give 0 for the "
                "first event, or the `cursor` of the chunk before."
            )
        return self._stored.since(cursor, limit)

    def events(
        self,
        kind: str | None = None,
        *,
        start: float | None = None,
        end: float | None = None,
    ) -> Iterator[Event | Unknown]:
        """Goes through the events stored so far, in the order in which they came.

        Args:
          kind: only this kind, as run files spell it, such as `"step_ready"`.
          start: only from here on, in seconds since the run's first event.
          end: only what was before, in seconds since the run's first event.

        Raises:
          ArgumentValueError: `start` or `end` is no number, or `end` is not after
            `start`.
          RecordError: the run was closed.
        """
        if start is None and end is None:
            for page in self._stored.pages(kind):
                yield from page
            return
        low_ns, high_ns = self._times(start, end)
        for first, last in self._stored.batches(low_ns, high_ns):
            for page in self._stored.pages(kind, first, last + 1):
                yield from (event for event in page if low_ns <= event.time_ns < high_ns)

    def between(
        self, low_ns: int, high_ns: int, *, before: int | None = None, standing: bool = False
    ) -> Iterator[list[Event | Unknown]]:
        """Gives the events of a range of time, some hundreds at a time, in their order.

        Args:
          low_ns: the first nanosecond, by the run's own clock (`Event.time_ns`).
          high_ns: the first nanosecond after the range.
          before: only events with lower sequence numbers; None for all.
          standing: only kinds that later events refer to.

        Raises:
          RecordError: the run was closed.
        """
        kinds: tuple[str | None, ...] = _STANDING if standing else (None,)
        for first, last in self._stored.batches(low_ns, high_ns):
            end = last + 1 if before is None else min(last + 1, before)
            for kind in kinds:
                for page in self._stored.pages(kind, first, end):
                    yield [event for event in page if low_ns <= event.time_ns < high_ns]

    def follow(
        self, kind: str | None = None, *, idle_seconds: float | None = None
    ) -> Iterator[Event | Unknown]:
        """Goes through the events and on with those that are still to come.

        Ends when the run is finished or its process has died, and when nothing
        came for `idle_seconds`.

        Args:
          kind: only this kind.
          idle_seconds: the longest wait for the next event; None waits as long as
            the run goes on.

        Raises:
          RecordError: the run was closed.
        """
        cursor, came = 0, time.monotonic()
        while True:
            live = self.live
            chunk = self.since(cursor)
            cursor = chunk.cursor
            yield from (e for e in chunk.events if kind is None or kind_of(e) == kind)
            if chunk.events:
                came = time.monotonic()
            elif not live or (idle_seconds is not None and time.monotonic() - came > idle_seconds):
                return
            else:
                time.sleep(_FOLLOW_SECONDS)

    def _times(self, start: float | None, end: float | None) -> tuple[int, int]:
        for name, given in (("start", start), ("end", end)):
            if given is not None and not is_number(given):
                raise ArgumentValueError(
                    f"{name} must be a number of seconds since the run began, got {given!r:.80}."
                )
        if start is not None and end is not None and not start < end:
            raise ArgumentValueError(
                f"end must be after start, got {start!r} to {end!r}. Give seconds since the run's "
                "first event."
            )
        first_ns = next((e.time_ns for e in self.events("run")), None)
        if first_ns is None:
            first_ns = next((e.time_ns for e in self.events()), 0)
        low_ns = first_ns + round(start * 1e9) if start is not None else -_FAR_NS
        return low_ns, first_ns + round(end * 1e9) if end is not None else _FAR_NS

    def summary(self) -> dict[str, Any]:
        """Returns what the run was, for a table of runs.

        Returns:
          `name`, `path`, `status` (`"running"`, `"finished"`, `"failed"`,
          `"interrupted"`, or `"killed"` when its process ended without saying
          so), `message`, `started` (seconds since 1970), `seconds`, `host`,
          `process`, `platform`, `devices` (names), `strategies` (class names),
          `replicas` (how many each of those has), `steps`, `examples`,
          `total_steps`, `metrics` (the last value of each name), `lost` and
          `versions`.
        """
        return summarize(self, self._stored.totals(), self._stored.ends())

    def advice(self) -> list[Advice]:
        """Says what the run could do better; see `distlab.advice.advise`.

        Returns:
          What was found, what costs the most first; empty when nothing was.

        Raises:
          RecordError: the run was closed.
        """
        return advise(self)

    def programs(self) -> Programs:
        """Returns the compiled programs: why each was made, and what is inside.

        Returns:
          A sequence of `Program`, the oldest first; in notebooks a table.

        Raises:
          RecordError: the run was closed.
        """
        return read_programs(self.events)

    def to_pandas(self, kind: str) -> Any:
        """Returns the events of one kind as a pandas table.

        Args:
          kind: as run files spell it, such as `"step"`; docs/events.md lists
            them with their fields.

        Returns:
          A `pandas.DataFrame` with a row for each event and a column for each
          field, `time_ns` first.

        Raises:
          ArgumentValueError: there is no such kind.
          MissingExtraError: pandas is not installed.
          RecordError: the run was closed.
        """
        return to_pandas(self, kind)

    def export(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Writes the run to a file for other tools.

        Args:
          path: the file; its suffix says what is written. `.json`: a timeline
            that Perfetto (ui.perfetto.dev) and Chrome open, with a track for
            the Python calls, one for the input, and one for each replica's
            device. `.jsonl`: each event on a line, after a line about the file.
            `.parquet`: the same, a row each (needs pyarrow).
          overwrite: whether a file that exists may be replaced.

        Returns:
          The file.

        Raises:
          ArgumentValueError: the suffix is none of those.
          MissingExtraError: pyarrow is needed and not installed.
          ArgumentTypeError: `path` is no path.
          RecordError: the file exists or can't be written, or the run was closed.
        """
        return export(self, path, overwrite=overwrite)

    def __repr__(self) -> str:
        """Names the run and its folder."""
        return f"<Run {self.meta.get('name', '')!r} in {self.path}>"

    def _repr_html_(self) -> str:
        """Shows in notebooks what the run was, and what it is advised."""
        told = self.summary()
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in told["metrics"].items())
        rows = [
            ["status", told["status"]],
            ["strategies", ", ".join(dict.fromkeys(told["strategies"])) or "none"],
            ["devices", str(len(told["devices"]))],
            ["steps", f"{told['steps']:,} in {told['seconds']:.1f} s"],
            ["examples", f"{told['examples']:,}"],
            ["last metrics", metrics or "none"],
            *(["advice", f"{one.text} {one.remedy}"] for one in self.advice()[:3]),
        ]
        return card(f"Run {told['name']}", str(self.path), (), rows)

    def close(self) -> None:
        """Lets go of the file."""
        self._stored.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
