"""One set of folds for a run, fed by one thread, however many look at it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from distlab.advice import advise_on
from distlab.control.loops import LoopControl, loops
from distlab.errors import DistlabError, InvalidArgumentError
from distlab.events import Advice, Source
from distlab.folds import Folds

_log: Final = logging.getLogger(__name__)

_LIMIT: Final = 5_000
_PAUSE_SECONDS: Final = 0.025
_LONG_PAUSE_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 5.0
_ADVICE_SECONDS: Final = 2.0
_ADVICE_SHARE: Final = 0.01


class Feed:
    """Reads a source in the background and keeps its folds up to date.

    Attributes:
      source: where the events come from.
      folds: what sessions look at.
      advice: what the run could do better, as of some seconds ago.
      trouble: why no more of the run is read, empty as long as it is.
    """

    def __init__(self, source: Source, ask: Callable[[], Any] | None = None) -> None:
        """Prepares to read `source`; `start` begins.

        Args:
          source: where the events come from.
          ask: asks the process that trains, which is this one, for a capture, and
            returns a future; None where that is another process, or none.
        """
        self.source = source
        self.folds = Folds()
        self.advice: list[Advice] = []
        self.trouble = ""
        self._ask = ask
        self._own = ask is not None
        self._asked: Any = None
        self._refused = ""
        self._next_advice = 0.0
        self._advised = -1
        self._stopping = threading.Event()
        self._read_all = threading.Event()
        self._stored_s: float | None = None
        self._thread = threading.Thread(target=self._work, name="distlab-feed", daemon=True)

    @property
    def path(self) -> Path | None:
        """The run's folder, None for events in memory."""
        return getattr(self.source, "path", None)

    @property
    def zero_ns(self) -> int | None:
        """When the run began by its own clock, None before it said so."""
        zero_ns: int | None = self.folds.columns("header")["time_ns"]
        return zero_ns

    @property
    def length_s(self) -> float:
        """Seconds from the run's beginning to its newest event."""
        ended = self.folds.columns("header")["ended_s"]
        return max(self.folds.columns("steps")["elapsed_s"], ended or 0.0)

    @property
    def loops(self) -> list[LoopControl] | None:
        """Loops that can be controlled, None where another process has them."""
        return loops() if self._own and self.live else None

    @property
    def live(self) -> bool:
        """Whether more events may come."""
        return bool(getattr(self.source, "live", True))

    @property
    def caught_up(self) -> bool:
        """Whether everything that had been recorded at the start was read."""
        return self._read_all.is_set()

    @property
    def read_share(self) -> float | None:
        """How much of what was recorded at the start was read, 0 to 1; None when not known."""
        return min(self.length_s / self._stored_s, 1.0) if self._stored_s else None

    @property
    def capture_state(self) -> str:
        """`"ready"`, `"running"`, why the last one failed, or empty when none can be taken."""
        if self._ask is None or not self.live:
            return ""
        asked = self._asked
        if asked is not None and not asked.done():
            return "running"
        failed = asked is not None and asked.exception()
        return self._refused or (str(failed) if failed else "ready")

    def capture(self) -> None:
        """Asks for a capture of the next steps, unless one is running."""
        if self._ask is None or self.capture_state == "running":
            return
        try:
            self._asked, self._refused = self._ask(), ""
        except DistlabError as error:
            self._refused = str(error)

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def stop(self) -> None:
        """Stops reading, within a few seconds."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def _work(self) -> None:
        try:
            self._read_on()
        except Exception as error:  # noqa: BLE001 - or pages would look live for ever
            self.trouble = f"{type(error).__name__}: {error}"
            _log.exception("The run can't be read any further.")

    def _read_on(self) -> None:
        self._stored_s = getattr(self.source, "seconds", None)
        while not self._stopping.is_set():
            taken = self.folds.read(self.source, _LIMIT)
            if taken == _LIMIT:
                continue
            self._advise()
            self._read_all.set()
            self._stopping.wait(_PAUSE_SECONDS if taken or self.live else _LONG_PAUSE_SECONDS)

    def _advise(self) -> None:
        """Looks for advice now and then: so seldom that it takes a hundredth of the time."""
        began = time.monotonic()
        version = self.folds.version("evidence")
        if version == self._advised or began < self._next_advice:
            return
        self._advised = version
        self.advice = advise_on(self.folds.columns("evidence"))
        spent = time.monotonic() - began
        self._next_advice = began + max(_ADVICE_SECONDS, spent / _ADVICE_SHARE)


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
