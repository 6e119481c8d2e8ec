"""This process among those that record the run, and its file in the run's folder."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from distlab.errors import RecordError, WorkerError
from distlab.processes import group
from distlab.processes.group import ProcessGroup
from distlab.recording import file_places
from distlab.recording.clocks import Clock, ClockWatch, compared
from distlab.recording.file_places import Place
from distlab.runs.run_file import RunFile
from distlab.runs.sent_run_file import SentRunFile
from distlab.text.shown import shown_clause, shown_text

_BEGIN_SECONDS: Final = 60.0
"""The longest wait of a process for process 0 to begin the run."""


@dataclass(frozen=True)
class Participant:
    """A process of those that record a run.

    Attributes:
      job: Its job in the cluster, empty without a cluster.
      task: Its number in that job.
      index: Its number among the processes.
      count: Number of the processes.
      generation: How often the cluster was started before.
      clock: Its clock beside that of process 0.
      meeting: The name under which the processes compare their clocks again; empty where they
        are on one machine.
    """

    job: str = ""
    task: int = 0
    index: int = 0
    count: int = 1
    generation: int = 0
    clock: Clock = field(default_factory=Clock)
    meeting: str = ""


def present(clock: Clock | None = None, meeting: str = "") -> Participant:
    """Returns this process among those that it has joined, if it has."""
    joined = group.current()
    if joined is None:
        return Participant()
    job, _, task = joined.worker.task.partition(":")
    return Participant(
        job,
        int(task or 0),
        joined.index,
        joined.count,
        joined.generation,
        clock or Clock(),
        meeting,
    )


def open_run_file(
    folder: Path, name: str, *, overwrite: bool, process: int
) -> tuple[RunFile | SentRunFile, Participant]:
    """Begins this process's file of a run.

    Of several processes the first one owns the folder: it refuses or clears it, and the others
    wait for that before they begin their files. Those that do not see the folder have theirs
    written by the first one, or by who started the cluster.
    """
    joined = group.current()
    if joined is None:
        return _file_of_one(folder, name, overwrite=overwrite, process=process), Participant()
    meeting = _meeting(folder)
    begins = _Beginning(joined, folder, name, overwrite=overwrite)
    if not joined.is_chief:
        said = _await_the_first(joined, meeting, folder)
        participant = _beside_the_first(joined, meeting)
        return begins.file_beside(said, participant), participant
    try:
        file, said = begins.first_file()
    except RecordError as error:
        joined.from_chief(meeting, _encode(_Said(refused=str(error))))
        raise
    joined.from_chief(meeting, _encode(said))
    return file, _beside_the_first(joined, meeting)


class _Said(msgspec.Struct, frozen=True):
    """The chief's facts about the run that it begins.

    Attributes:
      refused: Why there is none; empty when there is one.
      launcher: Whether who started the cluster writes all files.
      folder: The run's folder on the chief's machine.
      mark: The mark of the chief's file.
      port: Where the chief takes events of processes that do not see the folder; 0 for none.
      key: What it asks them for.
    """

    refused: str = ""
    launcher: bool = False
    folder: str = ""
    mark: str = ""
    port: int = 0
    key: str = ""


def _meeting(folder: Path) -> str:
    """Returns the name under which the processes that record to a folder meet."""
    return f"record {folder}"


def _encode(said: _Said) -> str:
    return msgspec.json.encode(said).decode()


class _Beginning:
    """The files with which the processes of a cluster begin a run."""

    def __init__(self, joined: ProcessGroup, folder: Path, name: str, *, overwrite: bool) -> None:
        self._joined = joined
        self._folder = folder
        self._name = name
        self._overwrite = overwrite

    def first_file(self) -> tuple[RunFile | SentRunFile, _Said]:
        """Begins the chief's file, and returns what the others need to know."""
        place = file_places.of_launcher()
        sent = None if place is None else self._sent(place, self._folder, present())
        if sent is not None:
            return sent, _Said(launcher=True)
        file = self._own(self._folder, present())
        port, key = file_places.offered(self._joined)
        folder = str(self._folder.absolute())
        return file, _Said(folder=folder, mark=file_places.mark(file), port=port, key=key)

    def file_beside(self, said: _Said, participant: Participant) -> RunFile | SentRunFile:
        """Begins this process's file beside that of the chief."""
        joined = self._joined
        if said.launcher:
            place, folder = file_places.of_launcher(), self._folder
        else:
            for seen in (self._folder, Path(said.folder)):
                if file_places.is_marked(seen, said.mark):
                    return self._own(seen, participant)
            place, folder = file_places.of_chief(joined, said.port, said.key), Path(said.folder)
        if place is None:
            raise RecordError(
                f"The processes of a cluster record to one folder, and {joined.worker.name} does "
                f"not see that of worker 0, {said.folder}. Name a folder that all of them see."
            )
        return self._sent(place, folder, participant) or self._own(self._folder, participant)

    def _own(self, folder: Path, participant: Participant) -> RunFile:
        return RunFile(
            folder,
            self._name,
            overwrite=self._overwrite,
            process=participant.index,
            processes=participant.count,
            clock_offset_ns=participant.clock.offset_ns,
        )

    def _sent(self, place: Place, folder: Path, participant: Participant) -> SentRunFile | None:
        return _sent(place, folder, self._name, participant, overwrite=self._overwrite)


def _sent(
    place: Place, folder: Path, name: str, participant: Participant, *, overwrite: bool
) -> SentRunFile | None:
    """Begins a file that another process writes; None, with a warning, if it is not reached."""
    try:
        return SentRunFile(
            (place.host, place.port),
            place.key,
            folder,
            name,
            overwrite=overwrite,
            process=participant.index,
            processes=participant.count,
            clock_offset_ns=participant.clock.offset_ns,
        )
    except RecordError:
        raise
    except OSError as error:
        warnings.warn(
            f"The events of worker {participant.index} can't be sent: {shown_clause(error)}. It "
            f"records to {folder} on its own machine, {socket.gethostname()}: copy its file beside "
            "those of the others afterwards.",
            RuntimeWarning,
            stacklevel=7,
        )
        return None


def _file_of_one(
    folder: Path, name: str, *, overwrite: bool, process: int
) -> RunFile | SentRunFile:
    place = file_places.of_launcher()
    sent = None if place is None else _sent(place, folder, name, present(), overwrite=overwrite)
    if sent is not None:
        return sent
    try:
        return RunFile(folder, name, overwrite=overwrite, process=process)
    except RecordError as error:
        if "TF_CONFIG" not in os.environ:
            raise
        raise RecordError(
            f"{error} The workers of a cluster record one run together where each has made its "
            "MultiWorkerMirroredStrategy before it calls record."
        ) from error


def _await_the_first(joined: ProcessGroup, meeting: str, folder: Path) -> _Said:
    """Waits until process 0 has begun the run, and returns what it says of it."""
    try:
        text = joined.from_chief(meeting, None, _BEGIN_SECONDS)
    except WorkerError as error:
        raise RecordError(
            f"A run of several processes is begun by worker 0, which has not called "
            f'record("{folder}") within {_BEGIN_SECONDS:g} s: {shown_text(error)} Call record in '
            "all workers with one folder, or in worker 0 alone."
        ) from error
    said = msgspec.json.decode(text, type=_Said)
    if said.refused:
        raise RecordError(f"Worker 0 could not begin the run. {said.refused}")
    return said


def _beside_the_first(joined: ProcessGroup, meeting: str) -> Participant:
    """Returns this process, with its clock compared where the processes run on several machines."""
    if len({worker.host for worker in joined.workers}) == 1:
        return present()
    try:
        return present(compared(joined, meeting, _BEGIN_SECONDS), meeting)
    except WorkerError:
        if joined.is_chief:  # the chief records alone, on its own clock
            return present()
        raise


def watch_clock(participant: Participant, note: Callable[[Clock], None]) -> ClockWatch | None:
    """Compares clocks again while a recording goes on; None where there is but one clock."""
    joined = group.current()
    if joined is None or not participant.meeting:
        return None
    return ClockWatch(joined, participant.meeting, note)
