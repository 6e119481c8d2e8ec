"""What a server shows: one run, or all runs in a folder, each read once for all its readers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from distlab.errors import NotARunError
from distlab.recording import Run
from distlab.runs.listing import run_folders
from distlab_dashboard.feed import Feed

_MOST_UNUSED: Final = 3
_LOOK_AGAIN_SECONDS: Final = 2.0
_MOST_RUNS: Final = 1_000


class Library(Protocol):
    """Where pages get their feeds from."""

    @property
    def single(self) -> bool:
        """Whether there is one run only, which needs no name."""

    def start(self) -> None:
        """Begins to read what is read in any case."""

    def stop(self) -> None:
        """Stops reading everything."""

    def hold(self, name: str) -> Feed:
        """Returns the feed of a run; `release` it afterwards.

        Raises:
          NotARunError: there is no such run.
        """

    def release(self, feed: Feed) -> None:
        """Says that a page no longer needs a feed."""

    def summaries(self) -> list[dict[str, Any]]:
        """Returns what `Run.summary` says of each run, with its `name` in the library as `key`."""


class OneRun:
    """A library of one run, which is read as long as the server runs.

    Args:
      feed: the run's feed.
    """

    single = True

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def start(self) -> None:
        """Begins to read."""
        self._feed.start()

    def stop(self) -> None:
        """Stops reading."""
        self._feed.stop()

    def hold(self, name: str) -> Feed:  # noqa: ARG002 - there is only one
        """Returns the feed."""
        return self._feed

    def release(self, feed: Feed) -> None:
        """Does nothing: it is read on."""

    def summaries(self) -> list[dict[str, Any]]:
        """Returns nothing: there is nothing to choose from."""
        return []


@dataclass
class _Known:
    """What was found out about a run, and what its files were like then."""

    state: tuple[tuple[int, int], ...]
    summary: dict[str, Any]


class Folder:
    """All runs in a folder and in the folders within it.

    A run is read while pages show it; the last three are kept for a while longer.

    Args:
      root: the folder. Nothing outside of it can be opened.
    """

    single = False

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Feed, int]] = {}
        self._known: dict[Path, _Known] = {}
        self._listed: list[dict[str, Any]] = []
        self._list_after = 0.0

    def start(self) -> None:
        """Does nothing: runs are read when a page asks for them."""

    def stop(self) -> None:
        """Stops reading all runs."""
        with self._lock:
            held, self._held = self._held, {}
        for feed, _ in held.values():
            feed.stop()

    def hold(self, name: str) -> Feed:
        """Returns the feed of the run with this name."""
        with self._lock:
            feed, readers = self._held.pop(name, (None, 0))
            if feed is None:
                feed = Feed(Run.open(self._path(name)))
                feed.start()
            self._held[name] = feed, readers + 1
            return feed

    def release(self, feed: Feed) -> None:
        """Lets go of a feed; of those that nobody reads, the newest three stay."""
        with self._lock:
            self._held = {
                name: (held, readers - (held is feed))
                for name, (held, readers) in self._held.items()
            }
            unused = [name for name, (_, readers) in self._held.items() if not readers]
            gone = [self._held.pop(name)[0] for name in unused[:-_MOST_UNUSED]]
        for old in gone:
            old.stop()

    def summaries(self) -> list[dict[str, Any]]:
        """Returns what is known of each run, the newest first; looks again after 2 s."""
        with self._lock:
            if time.monotonic() >= self._list_after:
                self._listed = self._look()
                self._list_after = time.monotonic() + _LOOK_AGAIN_SECONDS
            return self._listed

    def _path(self, name: str) -> Path:
        """Returns a run's folder, which lies inside of the root whatever the name says."""
        path = (self._root / name).resolve()
        if not path.is_relative_to(self._root):
            raise NotARunError(
                f"The dashboard shows the runs in its folder, and {name!r:.80} is not one of them. "
                "Choose one on the page Runs."
            )
        return path

    def _look(self) -> list[dict[str, Any]]:
        found = {}
        for path in run_folders(self._root):
            known = self._known.get(path)
            state = _state(path)
            if known is None or known.state != state or known.summary["status"] == "running":
                summary = _summary(path)
                if summary is None:
                    continue
                name = str(path.relative_to(self._root))
                known = _Known(state, {**summary, "key": name})
            found[path] = known
            if len(found) == _MOST_RUNS:
                break
        self._known = found
        return sorted((known.summary for known in found.values()), key=_age)


def _age(summary: dict[str, Any]) -> float:
    return -float(summary["started"])


def _state(path: Path) -> tuple[tuple[int, int], ...]:
    """What changes when a run's files do: their times and sizes."""
    stats = [file.stat() for file in sorted(path.glob("process-*")) if file.is_file()]
    return tuple((stat.st_mtime_ns, stat.st_size) for stat in stats)


def _summary(path: Path) -> dict[str, Any] | None:
    try:
        with Run.open(path) as run:
            size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
            return {**run.summary(), "bytes": size}
    except (NotARunError, OSError):  # it went away, or is damaged
        return None


def library_of(source: Any, make_feed: Callable[[Any], Feed]) -> Library:
    """Returns what a server shows for what it was given.

    Args:
      source: a run's folder, a folder of runs, a recording, or anything with `since`.
      make_feed: makes the feed of a single run.

    Raises:
      NotARunError: there is no such folder.
      InvalidArgumentError: it is nothing to read events from.
    """
    if isinstance(source, str | Path):
        folder = Path(source)
        found = next(run_folders(folder), None) if folder.is_dir() else None
        if found is not None and found != folder:
            return Folder(folder)
    return OneRun(make_feed(source))
