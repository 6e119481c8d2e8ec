"""The runs of a server: one run, or all runs in a folder, each read once for all its pages."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from distlab.errors import InvalidArgumentError, NotARunError
from distlab.events import Source, sink
from distlab.page.runs_table import RunSummary
from distlab.recording import Recording, Run
from distlab.runs.listing import DEEPEST, Unreadable, run_folders, summary_of
from distlab.runs.run_file import being_written, file_of, place_of, run_files
from distlab.runs.summary import gaps
from distlab.text.paths import at_home, is_folder
from distlab.text.shown import shown
from distlab_dashboard.served_run import ServedRun

_log: Final = logging.getLogger(__name__)

_MOST_UNUSED: Final = 3
_LIST_SECONDS: Final = 2.0
_LIST_SHARE: Final = 0.1
"""The largest share of the time that listing may take: it holds up all pages."""

_MOST_RUNS: Final = 1_000
_LINKED: Final = "Its file is a link, and may lie outside."

_Place: TypeAlias = tuple[int, int] | None
_State: TypeAlias = tuple[tuple[str, int, int], ...]
"""The name, time and size of each of a run's files."""


def _stop(run: ServedRun) -> None:
    try:
        run.stop()
    except Exception:  # noqa: BLE001 - nobody asks for the result
        _log.exception("The reading of %s could not be stopped", run.name)


@dataclass
class _Listed:
    """A run's summary, and the state of its files when it was made."""

    state: _State
    summary: RunSummary


class Library:
    """The runs that pages can show: one, or all in a folder and its folders, three levels deep.

    A run is read while pages show it; the three that were released last are kept. One that takes
    the place of another is a run of its own, which pages show that are opened from then on. The
    list has the 1,000 that were written last, and those that go on.
    """

    def __init__(self, root: Path | None, only: ServedRun | None = None) -> None:
        self.single = only is not None
        self.left_out = 0  # older runs that the newest `summaries` left out
        self._root = root.resolve() if root is not None else None
        self._only = only
        self._lock = threading.Lock()
        self._held: dict[tuple[Path | None, _Place], tuple[ServedRun, int]] = {}
        if only is not None:
            self._held[self._root, _place(self._root)] = only, 0
        self._listed: dict[Path, _Listed] = {}
        self._summaries: list[RunSummary] = []
        self._list_after = 0.0
        # Reading ends slowly, and pages need not wait.
        self._endings = ThreadPoolExecutor(1, "distlab dashboard endings")

    def start(self) -> None:
        """Begins to read a single run; others are read when a page asks for them."""
        if self._only is not None:
            self._only.start()

    def stop(self) -> None:
        """Stops reading all runs."""
        with self._lock:
            held, self._held = self._held, {}
        for run, _ in held.values():
            run.stop()
        self._endings.shutdown()

    def hold(self, name: str) -> ServedRun:
        """Returns the run with this name, which a single one need not have, and reads it."""
        path = self._path(name)  # also for a run that is held, whose folder may be gone
        key = path, _place(path)  # a folder has many names, such as ./first
        with self._lock:
            run, pages = self._held.pop(key, (None, 0))
            if run is None:
                try:
                    run = served_run(path)
                except NotARunError:
                    if not self.single:
                        raise
                    key, (run, pages) = self._held.popitem()  # the old one can still be shown
                else:
                    run.start()
            self._held[key] = run, pages + 1
            return run

    def release(self, run: ServedRun) -> None:
        """Ends one `hold`; of the runs that no page shows, the newest three stay."""
        with self._lock:
            self._held = {
                key: (held, pages - (held is run)) for key, (held, pages) in self._held.items()
            }
            unused = [key for key, (_, pages) in self._held.items() if not pages]
            for key in unused[:-_MOST_UNUSED]:
                self._endings.submit(_stop, self._held.pop(key)[0])

    def summaries(self) -> list[RunSummary]:
        """Returns the runs of a folder, the newest first, from a list that is renewed every 2 s.

        Of many thousands it is renewed less often.
        """
        if self.single or self._root is None:
            return []
        with self._lock:
            began = time.monotonic()
            if began >= self._list_after:
                self._summaries = self._list(self._root)
                ended = time.monotonic()
                self._list_after = ended + max(_LIST_SECONDS, (ended - began) / _LIST_SHARE)
            return self._summaries

    def _path(self, name: str) -> Path | None:
        """Returns a run's folder, which lies inside of the root whatever the name contains."""
        root = self._root
        if self._only is not None:
            if name not in {"", self._only.name}:
                raise _unknown(name)
            return root
        assert root is not None
        try:
            path = (root / name).resolve()
            known = bool(name) and path.is_relative_to(root) and path.is_dir()
        except (ValueError, OSError):  # no file can have such a name
            known = False
        if not known or _is_linked(path):
            raise _unknown(name)
        return path

    def _list(self, root: Path) -> list[RunSummary]:
        states = {path: _state(path) for path in run_folders(root)}
        newest = sorted(states, key=lambda path: _written_ns(states[path]), reverse=True)
        older = newest[_MOST_RUNS:]
        going_on = [path for path in older if _goes_on(path, states[path])]
        self.left_out = len(older) - len(going_on)
        found = {}
        for path in (*newest[:_MOST_RUNS], *going_on):
            listed, state = self._listed.get(path), states[path]
            if listed is None or listed.state != state or listed.summary.status == "running":
                summary = _summary(path, str(path.relative_to(root)))
                listed = _Listed(state, summary)
            found[path] = listed
        self._listed = found
        summaries = [listed.summary for listed in found.values()]
        return sorted(summaries, key=lambda summary: summary.started, reverse=True)


def _unknown(name: str) -> NotARunError:
    return NotARunError(
        f"The dashboard shows the runs in its folder, and {shown(name)} is not one of them. "
        "Choose one on the page Runs."
    )


def _is_linked(path: Path) -> bool:
    """Returns whether a folder's run files are links, which may lead out of the root."""
    with suppress(OSError):  # it may not be read, which opening it says
        return any(file.is_symlink() for file in run_files(path))
    return False


def _place(folder: Path | None) -> _Place:
    """Returns what identifies a run's first file, None when there is no file or no folder."""
    return place_of(file_of(folder)) if folder is not None else None


def _state(path: Path) -> _State:
    """Returns the facts of a run's files, which change when the run does."""
    return tuple(one for one in _files(path) if one[0].startswith("process-"))


def _written_ns(state: _State) -> int:
    """Returns when a run was last written, which for one that has ended is its end."""
    return max((time_ns for _, time_ns, _ in state), default=0)


def _goes_on(path: Path, state: _State) -> bool:
    """Returns whether a run is being written, without opening one that was closed."""
    locked = any(name.endswith(".lock") for name, _, _ in state)
    return locked and any(map(being_written, run_files(path)))


def _files(path: Path) -> _State:
    """Returns the facts of a folder's files; of a folder that was deleted none."""
    try:
        with os.scandir(path) as found:
            files = [(file.name, file.stat()) for file in found if file.is_file()]
    except OSError:
        return ()
    return tuple(sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in files))


def _summary(path: Path, key: str) -> RunSummary:
    """Returns a run's row, which states why where the run can't be read."""
    known = Unreadable(path, _LINKED) if _is_linked(path) else summary_of(path)
    size = sum(size for _, _, size in _files(path))
    if not isinstance(known, dict):
        key = key.encode("utf-8", "backslashreplace").decode()
        return RunSummary(key, size, name=key, fault=known.why)
    return RunSummary(
        key,
        size,
        name=known["name"],
        status=known["status"],
        started=known["started"],
        seconds=known["seconds"],
        steps=known["steps"],
        rate=known["rate"],
        total_steps=known["total_steps"],
        replicas=known["replicas"],
        metrics=known["metrics"],
        gaps=gaps(known),
    )


def library_of(source: object) -> Library:
    """Returns the library that a server shows."""
    if isinstance(source, Library):
        return source
    if isinstance(source, str | Path) and source != "":  # Run.open refuses that
        folder = Path(at_home(str(source)))
        found = next(run_folders(folder), None) if is_folder(folder) else None
        if found is not None and found != folder:
            return Library(folder)
        if found is None and is_folder(folder):
            raise NotARunError(
                f"A dashboard shows a run's folder or a folder of runs, and no run is in {folder} "
                f"and its subfolders, {DEEPEST} levels deep; links are not followed. Name the "
                "folder that was passed to record, or one of such folders."
            )
        return Library(folder, served_run(source))
    return Library(None, served_run(source))


def served_run(source: object) -> ServedRun:
    """Returns a single run to show."""
    capture: Callable[[], Future[object]] | None = getattr(source, "capture", None)
    if hasattr(source, "since"):
        readable: Source = source
        return ServedRun(readable, capture)
    path = source if isinstance(source, str | os.PathLike) else getattr(source, "path", None)
    if isinstance(source, Recording) and path is None:
        if sink.recorder().enabled:
            why = 'keeps its events in memory only. Name one: distlab.record("runs/first")'
        else:
            why = "stores nothing, because recording is off (DISTLAB_RECORD=off). Unset it"
        raise InvalidArgumentError(
            f"A dashboard shows a recording's folder, and the recording {source.name!r} {why}."
        )
    if path is None:
        raise InvalidArgumentError(
            f"A dashboard shows a run's folder or a source of events, got {type(source).__name__}. "
            "Pass the folder that was passed to distlab.record."
        )
    opened = Run.open(path)
    return ServedRun(opened, capture, close=opened.close)
