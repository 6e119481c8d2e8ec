"""Moves events from the ring to a run file, in a thread of its own.

The writer is one more reader of the ring, with a pin: emitting an event costs
the same with and without a file, and a disk that is slow or full never stops
the training.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable
from typing import Final

from distlab.events import Event, Lost, Run, RunEnd, Unknown
from distlab.recording.preview_room import PreviewRoom
from distlab.recording.ring import Ring
from distlab.runs.run_file import RunFile
from distlab.runs.sent_run_file import SentRunFile
from distlab.threads import Thread

COMMIT_SECONDS: Final = 0.05
"""The approximate time that an event waits in memory before it is stored."""

_AT_ONCE: Final = 4_096
_RETRY_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 30.0


class Writer:
    """Stores a ring's events in a run file until it is closed.

    The file begins with its own `Run` event, goes on with the standing events
    that were known before, and ends with its own `RunEnd`; those of other
    recordings in the same process are left out.
    """

    def __init__(
        self,
        ring: Ring,
        file: RunFile | SentRunFile,
        stored: Callable[..., None] = lambda **_: None,
    ) -> None:
        self.file = file
        self._stored = stored
        self._lost = 0
        self._ring = ring
        self._standing, self._pin = ring.pin()
        self._own: list[Event] = []
        self._room = PreviewRoom()
        self._notes: dict[int, Event] = {}
        self._started = False
        self._failed = False
        self._why = ""
        self._ended = False
        self._closed = False
        self._begun = threading.Event()
        self._ending = threading.Event()
        self._thread = Thread(self._write_on, name="distlab run file")
        try:
            self._thread.start()
        except BaseException:  # an interrupt: nobody has the writer yet, to close it
            self.close(RunEnd(time_ns=time.monotonic_ns(), status="interrupted", message=""))
            raise

    def announce(self, run: Run) -> None:
        """Adds the file's own `Run` event. Call it before the ring receives the event."""
        self._own.append(run)
        self._begun.set()

    def close(self, end: RunEnd) -> None:
        """Stores the last events and the end, and closes the file. Twice does nothing."""
        try:
            self._ending.set()
            self._finish(end)
        except BaseException:  # an interrupt is no reason to leave the run open
            self._finish(end)
            raise

    def _finish(self, end: RunEnd) -> None:
        """Stores the end and closes the file; called again, goes on where it was interrupted."""
        if not self._waited():
            self._why = f"they took longer than {_CLOSE_SECONDS:g} s"
            self._note_lost(self._last_lost())
            return
        if not self._ended:
            try:
                self.file.write([*self._gap(), end])
            except (sqlite3.Error, OSError) as error:
                self._note_failure(str(error))
            self._ended = True
            if self._failed:
                self._note_lost(self._last_lost())
        if not self._closed:
            self._ring.unpin(self._pin)
            self.file.close()
            self._closed = True

    def _waited(self) -> bool:
        """Waits, within a limit, until the thread has stored its last events."""
        self._thread.join(_CLOSE_SECONDS)
        return not self._thread.is_alive()

    def _write_on(self) -> None:
        while not self._ending.wait(_RETRY_SECONDS if self._failed else COMMIT_SECONDS):
            if self._begun.is_set():
                self._store_all()
        if self._begun.is_set():
            self._store_all()

    def _store_all(self) -> None:
        """Stores all events up to now; stops at the first failure."""
        target = self._ring.end
        while self._pin.cursor < target and self._store_some():
            pass
        self._stored(waiting=self._left, lost=self._lost)

    def _store_some(self) -> bool:
        chunk = self._ring.since(self._pin.cursor, _AT_ONCE)
        events = [event for event in chunk.events if self._belongs(event)]
        if chunk.lost:
            reason = "The run file could not keep up with the events."
            events.insert(0, Lost(time_ns=time.monotonic_ns(), count=chunk.lost, reason=reason))
        if not self._started:
            standing = [event for event in self._standing if not isinstance(event, Run)]
            events = [self._own[0], *standing, *events]
        try:
            replaced = self.file.write(events)
        except (sqlite3.Error, OSError) as error:
            self._note_failure(str(error))
            return False
        self._started = True
        self._failed = False
        self._pin.cursor = chunk.cursor
        self._lost += chunk.lost
        for lost in replaced:
            self._lost += lost.count
            self._announce_lost(lost)
        return True

    def _belongs(self, event: Event | Unknown) -> bool:
        if isinstance(event, Run):
            return any(event is own for own in self._own[1:])
        kept = not isinstance(event, RunEnd) and id(event) not in self._notes
        return kept and self._room.admits(event)

    def _note_failure(self, why: str) -> None:
        """Reports, once, that storing begins to fail."""
        self._why = why
        if not self._failed:
            self._failed = True
            self._note_lost(f"The run file can't be written: {why}. Writing is retried.")

    def _gap(self) -> list[Event]:
        """Returns the note of events that have no room; SQLite keeps that of a failed batch."""
        if not self._failed:
            return []
        lost = Lost(time_ns=time.monotonic_ns(), count=self._left, reason=self._last_lost())
        return [*([] if self._started else self._own[:1]), lost]

    @property
    def _left(self) -> int:
        return self._ring.end - self._pin.cursor

    def _last_lost(self) -> str:
        return (
            f"The last {self._left} events were not stored: {self._why}. Free space there, or "
            "record to another disk."
        )

    def _note_lost(self, reason: str) -> None:
        """Reports what is not stored."""
        self._announce_lost(Lost(time_ns=time.monotonic_ns(), count=self._left, reason=reason))

    def _announce_lost(self, lost: Lost) -> None:
        """Reports to readers of the ring, and to the user, that events were lost."""
        self._notes[id(lost)] = lost
        # Where warnings are errors, one raised here would only end this thread. It comes first:
        # who finds the event has been warned.
        with contextlib.suppress(RuntimeWarning):
            warnings.warn(f"{self.file.path}: {lost.reason}", RuntimeWarning, stacklevel=2)
        self._ring.append(lost)
