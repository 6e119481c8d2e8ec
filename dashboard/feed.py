"""One set of folds for a run, fed by one thread, however many look at it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Final

from distlab.errors import InvalidArgumentError
from distlab.events import Source
from distlab.folds import Folds

_LIMIT: Final = 5_000
_PAUSE_SECONDS: Final = 0.1
_LONG_PAUSE_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 5.0


class Feed:
    """Reads a source in the background and keeps its folds up to date.

    Attributes:
      source: where the events come from.
      folds: what sessions look at.
    """

    def __init__(self, source: Source) -> None:
        """Prepares to read `source`; `start` begins."""
        self.source = source
        self.folds = Folds()
        self._stopping = threading.Event()
        self._read_all = threading.Event()
        self._thread = threading.Thread(target=self._work, name="distlab-feed", daemon=True)

    @property
    def path(self) -> Path | None:
        """The run's folder, None for events in memory."""
        return getattr(self.source, "path", None)

    @property
    def live(self) -> bool:
        """Whether more events may come."""
        return bool(getattr(self.source, "live", True))

    @property
    def caught_up(self) -> bool:
        """Whether everything that had been recorded at the start was read."""
        return self._read_all.is_set()

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def stop(self) -> None:
        """Stops reading, within a few seconds."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def _work(self) -> None:
        while not self._stopping.is_set():
            taken = self.folds.read(self.source, _LIMIT)
            if taken == _LIMIT:
                continue
            self._read_all.set()
            self._stopping.wait(_PAUSE_SECONDS if taken or self.live else _LONG_PAUSE_SECONDS)


def source_of(source: Any) -> Source:
    """Returns something to read events from.

    Args:
      source: a run's folder, a recording in progress, or anything with `since`.

    Raises:
      NotARunError: the folder does not hold a recorded run.
      InvalidArgumentError: it is none of these.
    """
    if hasattr(source, "since"):
        readable: Source = source
        return readable
    path = source if isinstance(source, str | os.PathLike) else getattr(source, "path", None)
    if path is None:
        raise InvalidArgumentError(
            f"A dashboard shows a run's folder or a source of events, got {type(source).__name__}. "
            "Give it the folder that was given to distlab.record."
        )
    from distlab.recording import Run

    return Run.open(path)
