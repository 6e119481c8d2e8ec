"""Reads a run once for all views of it, a few times a second."""

from __future__ import annotations

import atexit
import threading
from typing import Protocol

from distlab.events import Source
from distlab.folds import Folds

_PERIOD_S = 0.25
_QUIET_TICKS = 4
_CHUNK = 10_000


class View(Protocol):
    """What wants to know how a run goes on."""

    def refresh(self, folds: Folds) -> None:
        """Shows what changed."""

    def tick(self) -> None:
        """Shows what is no event; called often, so it does nothing where nothing changed."""

    def settle(self, folds: Folds) -> None:
        """Leaves a lasting picture: nothing has changed for a moment."""

    def fail(self, error: Exception) -> None:
        """Says that nothing more will come, because of an error."""


class Feed:
    """One reader of a source, with a thread of its own while it has views.

    A tick on which nothing happened costs one look at the source, and sends
    nothing. The thread ends with the last view.

    Attributes:
      source: what is read.
      folds: all that is known so far.
    """

    def __init__(self, source: Source) -> None:
        """Reads `source` from its beginning; no thread runs yet."""
        self.source = source
        self.folds = Folds()
        self._views: list[View] = []
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._quiet = 0

    def add(self, view: View) -> None:
        """Keeps a view up to date from now on."""
        with self._lock:
            self._views.append(view)
            if self._thread is None:
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._work, args=(self._stop,), name="distlab-watch", daemon=True
                )
                self._thread.start()
                atexit.register(self._stop.set)

    def remove(self, view: View) -> None:
        """Forgets a view; with the last one the thread ends."""
        with self._lock:
            if view in self._views:
                self._views.remove(view)
            if not self._views and self._thread is not None:
                atexit.unregister(self._stop.set)
                self._stop.set()
                self._thread = None

    def pull(self) -> bool:
        """Reads everything there is now and shows it; returns whether there was any."""
        with self._lock:
            taken = more = self.folds.read(self.source, _CHUNK)
            while more == _CHUNK:
                more = self.folds.read(self.source, _CHUNK)
            if taken:
                for view in list(self._views):
                    view.refresh(self.folds)
            return bool(taken)

    def settle(self) -> None:
        """Reads on, and lets every view leave its picture."""
        with self._lock:
            self.pull()
            for view in list(self._views):
                view.settle(self.folds)

    def _work(self, stop: threading.Event) -> None:
        while not stop.wait(_PERIOD_S):
            try:
                self._tick()
            except Exception as error:  # noqa: BLE001 - whatever it is, the reader has to see it
                with self._lock:
                    for view in list(self._views):
                        view.fail(error)
                return

    def _tick(self) -> None:
        with self._lock:
            for view in list(self._views):
                view.tick()
        self._quiet = 0 if self.pull() else self._quiet + 1
        if self._quiet == _QUIET_TICKS:
            self.settle()
