"""The time bar: which moment or range of a run a page shows, live or past."""

from __future__ import annotations

import time
from typing import Final

from distlab.folds import Folds
from distlab.page.facts import Facts
from distlab.page.feed import Feed
from distlab.page.view import View
from distlab_dashboard.time_slice import TimeSlice

FASTEST: Final = 100.0
"""The most seconds of a run that pass in a second."""


class Playback:
    """Chooses the folds that a page shows: those of the whole run, or of a part of it.

    A page that follows the run shows the folds that all pages share. For any other
    moment it has folds of its own, made from the events up to then.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._view = View()
        self._slice: TimeSlice | None = None
        self._closed: TimeSlice | None = None
        self._shown: tuple[float | None, float | None] = (None, None)
        self._at: float | None = None
        self._started = 0.0

    def choose(self, view: View) -> None:
        """Follows the reader's choice."""
        old, self._view = self._view, view
        if (old.at, old.speed) != (view.at, view.speed):
            self._at, self._started = view.at, time.monotonic()

    def folds(self) -> Folds:
        """Returns the folds of the moment, as far as they are read."""
        zero_ns = self._feed.zero_ns
        self._play()
        if zero_ns is None or (self._at is None and self._view.since is None):
            self.close()
            return self._feed.folds
        part = self._opened(zero_ns)
        if self._at is None:
            part.follow(self._feed.folds.cursor)
        else:
            part.reach(zero_ns + round(self._at * 1e9) + 1)
        return part.folds

    def facts(self) -> Facts:
        """Returns the facts of the time bar."""
        return {
            "time_end": round(self._feed.length_s, 3),
            "time_at": None if self._at is None else round(self._at, 3),
            "time_since": self._view.since,
            "time_playing": self._at is not None
            and self._view.speed is not None
            and self._at < self._feed.length_s,
            "time_reading": self._slice is not None and self._slice.reading,
        }

    def close(self) -> None:
        """Frees the folds of the part that was shown."""
        if self._slice is not None:
            self._slice.close()
            if self._slice.works:
                self._closed = self._slice
            self._slice = None

    def _play(self) -> None:
        """Moves the moment on, up to the run's newest event."""
        view = self._view
        if self._at is None or view.at is None or view.speed is None:
            return
        passed = (time.monotonic() - self._started) * min(view.speed, FASTEST)
        self._at = view.at + passed
        if self._at >= self._feed.length_s:
            self._at = None if self._feed.live else self._feed.length_s

    def _opened(self, zero_ns: int) -> TimeSlice:
        """Returns the slice to show; a moment before the last one needs a new slice."""
        since, at = self._view.since, self._at
        old_since, old_at = self._shown
        self._shown = (since, at)
        follows = at is None
        followed = old_at is None
        back = at is not None and old_at is not None and at < old_at
        if self._slice is None or since != old_since or back or follows != followed:
            self.close()
            start_ns = None if since is None else zero_ns + round(since * 1e9)
            self._slice = TimeSlice(self._feed.source, start_ns, self._closed)
        return self._slice
