"""Reading a run for pages and notebook views: one thread and one set of folds for all viewers."""

from __future__ import annotations

import atexit
import socket
import threading
import time
from pathlib import Path
from typing import Final, Protocol

from distlab.events import Source
from distlab.folds import Folds
from distlab.page.newest_advice import NewestAdvice

_CHUNK: Final = 5_000
_IDLE_SECONDS: Final = 1.0
"""Pause between two reads of a run to which nothing is added any more."""

_SETTLED_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 5.0


class Viewer(Protocol):
    """An observer of a feed. The feed calls it from its thread, one call at a time."""

    def refresh(self, folds: Folds) -> None:
        """Shows new events."""

    def tick(self) -> None:
        """Shows state that no event carries; called in every round, mostly without a change."""

    def settle(self, folds: Folds) -> None:
        """Leaves a lasting picture; called when no event came for a second."""

    def fail(self, error: Exception) -> None:
        """Shows why the run can be read no further; nothing is called afterwards."""


class Feed:
    """The only reader of a source. Its thread runs while it has viewers."""

    def __init__(self, source: Source, period_s: float = 0.25) -> None:
        self.source = source
        self.folds = Folds()
        self.advice = NewestAdvice(self.folds)
        self.caught_up = False
        self._period_s = period_s
        self._quiet_s = 0.0
        self._stored_s: float | None = None
        self._viewers: list[Viewer] = []
        self._viewing = threading.RLock()
        self._reading = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def path(self) -> Path | None:
        """The run's folder, None for events in memory."""
        return getattr(self.source, "path", None)

    @property
    def live(self) -> bool:
        """True while more events may come."""
        return bool(getattr(self.source, "live", True))

    @property
    def living(self) -> frozenset[int] | None:
        """The processes that still record the run; None where it is not known."""
        return getattr(self.source, "living", None)

    @property
    def zero_ns(self) -> int | None:
        """Start of the run by its own clock, None until its first event was read."""
        return self.folds.columns("header")["time_ns"]

    @property
    def length_s(self) -> float:
        """Seconds from the run's beginning to its newest event."""
        ended = self.folds.columns("header")["ended_s"]
        elapsed = self.folds.columns("steps")["elapsed_s"]
        # Steps of a coordinator's workers may be in other processes.
        return max(elapsed, self.folds.columns("coordination")["now_s"], ended or 0.0)

    @property
    def now_s(self) -> float | None:
        """Seconds since a live run of this machine began; None for others, whose clock may differ.

        Where nothing happens, no event has the time.
        """
        header = self.folds.columns("header")
        began_ns = header["time_ns"]
        if began_ns is None or not self.live or header["host"] != socket.gethostname():
            return None
        return (time.monotonic_ns() - began_ns) / 1e9

    @property
    def read_share(self) -> float | None:
        """Share of the stored run that was read, 0 to 1; None for an unknown length."""
        return min(self.length_s / self._stored_s, 1.0) if self._stored_s else None

    def add(self, viewer: Viewer) -> None:
        """Keeps a viewer up to date; the first one starts the thread."""
        with self._viewing:
            self._viewers.append(viewer)
            if self._thread is None:
                self._stop = threading.Event()
                thread = threading.Thread(
                    target=self._work, args=(self._stop,), name="distlab-feed", daemon=True
                )
                thread.start()
                self._thread = thread
                atexit.register(self._stop.set)

    def remove(self, viewer: Viewer, *, wait: bool = False) -> None:
        """Forgets a viewer; the last one ends the thread."""
        ended = None
        with self._viewing:
            if viewer in self._viewers:
                self._viewers.remove(viewer)
            if not self._viewers and self._thread is not None:
                atexit.unregister(self._stop.set)
                self._stop.set()
                ended, self._thread = self._thread, None
        if wait and ended is not None:
            ended.join(_STOP_SECONDS)

    def pull(self) -> bool:
        """Reads all events up to now and shows them; returns whether there were any."""
        return self._pull(threading.Event())

    def settle(self) -> None:
        """Reads on, then has every viewer leave its picture."""
        with self._viewing:
            self.pull()
            for viewer in list(self._viewers):
                viewer.settle(self.folds)

    def _pull(self, stop: threading.Event) -> bool:
        any_taken = False
        while not stop.is_set():
            with self._reading:
                taken = self.folds.read(self.source, _CHUNK)
            any_taken |= taken > 0
            if taken < _CHUNK:
                break
        if any_taken:
            with self._viewing:
                for viewer in list(self._viewers):
                    viewer.refresh(self.folds)
        return any_taken

    def _work(self, stop: threading.Event) -> None:
        try:
            self._stored_s = getattr(self.source, "seconds", None)
            while not stop.wait(self._round(stop)):
                pass
        except Exception as error:  # noqa: BLE001 - every viewer has to show it, whatever it is
            with self._viewing:
                for viewer in list(self._viewers):
                    viewer.fail(error)

    def _round(self, stop: threading.Event) -> float:
        """Reads once and informs the viewers; returns the seconds until the next round."""
        taken = self._pull(stop)
        with self._viewing:
            for viewer in list(self._viewers):
                viewer.tick()
        self.caught_up |= not stop.is_set()
        pause_s = self._period_s if taken or self.live else max(_IDLE_SECONDS, self._period_s)
        quiet_s = 0.0 if taken else self._quiet_s + pause_s
        if self._quiet_s < _SETTLED_SECONDS <= quiet_s:
            self.settle()
        self._quiet_s = quiet_s
        return pause_s
