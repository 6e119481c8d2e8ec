"""This process among those that record the run, and its file in the run's folder.

Processes that see the chief's folder write their own files there. Others send their events: to
the process that started the cluster where that takes them (`DISTLAB_COLLECTOR`), else to the
chief, over a connection that the chief offers in the key-value store.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from distlab.errors import RecordError, WorkerError
from distlab.processes import group
from distlab.processes.group import ProcessGroup
from distlab.recording.clocks import Clock, ClockWatch, compared
from distlab.runs.collector import Collector
from distlab.runs.run_file import RunFile, file_of, lock_path
from distlab.runs.sent_run_file import SentRunFile
from distlab.text.shown import shown_clause, shown_text
from distlab.user_code import warn

_BEGIN_SECONDS: Final = 60.0
"""The longest wait of a process for process 0 to begin the run."""

_END_SECONDS: Final = 30.0
"""The longest wait of the chief at its end for those whose files it writes."""

_collector: Collector | None = None


@dataclass(frozen=True)
class Participant:
    """A process of those that record a run: its place in the cluster, and its clock.

    `meeting` is the name under which the processes compare their clocks again; empty where they
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


class _Said(msgspec.Struct, frozen=True):
    """The chief's facts about the run: its folder and the mark of its file, or why there is none.

    `launcher` is set where the process that started the cluster writes all files. The chief takes
    the events of processes that do not see its folder at `port`, 0 for none.
    """

    refused: str = ""
    launcher: bool = False
    folder: str = ""
    mark: str = ""
    port: int = 0
    key: str = ""


def open_run_file(
    folder: Path, name: str, *, overwrite: bool, process: int
) -> tuple[RunFile | SentRunFile, Participant]:
    """Begins this process's file of a run.

    Of several processes the first one owns the folder: it refuses or clears it, and the others
    wait for that before they begin their files.
    """
    joined = group.current()
    begins = _Beginning(name, overwrite=overwrite)
    if joined is None:
        return begins.only_file(folder, process), Participant()
    meeting = _meeting(folder)
    if not joined.is_chief:
        said = _await_the_first(joined, meeting, folder)
        participant = _beside_the_first(joined, meeting)
        return begins.file_beside(joined, said, folder, participant), participant
    try:
        file, said = begins.first_file(joined, folder)
    except RecordError as error:
        _say(joined, meeting, _Said(refused=str(error)))
        raise
    _say(joined, meeting, said)
    return file, _beside_the_first(joined, meeting)


def _meeting(folder: Path) -> str:
    """Returns the name under which the processes that record to a folder meet."""
    return f"record {folder}"


def _say(joined: ProcessGroup, meeting: str, said: _Said) -> None:
    joined.from_chief(meeting, msgspec.json.encode(said).decode())


class _Beginning:
    """The ways to begin a process's file of a run."""

    def __init__(self, name: str, *, overwrite: bool) -> None:
        self._name = name
        self._overwrite = overwrite

    def only_file(self, folder: Path, process: int) -> RunFile | SentRunFile:
        """Begins the file of a program of one process, which a launcher may write."""
        if (sent := self._sent_to_launcher(folder, present())) is not None:
            return sent
        try:
            return RunFile(folder, self._name, overwrite=self._overwrite, process=process)
        except RecordError as error:
            if "TF_CONFIG" not in os.environ:
                raise
            raise RecordError(
                f"{error} The workers of a cluster record one run together where each has made "
                "its MultiWorkerMirroredStrategy before it calls record."
            ) from error

    def first_file(self, joined: ProcessGroup, folder: Path) -> tuple[RunFile | SentRunFile, _Said]:
        """Begins the chief's file, and returns what the others need to know."""
        if (sent := self._sent_to_launcher(folder, present())) is not None:
            return sent, _Said(launcher=True)
        file = self._own(folder, present())
        mark = secrets.token_hex(16)
        file.mark(mark)
        port, key = _offered(joined)
        return file, _Said(folder=str(folder.absolute()), mark=mark, port=port, key=key)

    def file_beside(
        self, joined: ProcessGroup, said: _Said, folder: Path, participant: Participant
    ) -> RunFile | SentRunFile:
        """Begins this process's file beside that of the chief."""
        sent = None
        if said.launcher:
            sent = self._sent_to_launcher(folder, participant)
        else:
            for seen in (folder, Path(said.folder)):
                if _is_marked(seen, said.mark):
                    return self._own(seen, participant)
            if not said.port:
                raise RecordError(
                    "The processes of a cluster record to one folder, and "
                    f"{joined.worker.name} does not see that of worker 0, {said.folder}. Name a "
                    "folder that all of them see."
                )
            chief = joined.links[0].getpeername()[0], said.port
            sent = self._sent(chief, said.key, Path(said.folder), participant)
        return sent or self._own(folder, participant)

    def _own(self, folder: Path, participant: Participant) -> RunFile:
        return RunFile(
            folder,
            self._name,
            overwrite=self._overwrite,
            process=participant.index,
            processes=participant.count,
            clock_offset_ns=participant.clock.offset_ns,
        )

    def _sent_to_launcher(self, folder: Path, participant: Participant) -> SentRunFile | None:
        """Begins a file that the process which started the cluster writes, if it takes events."""
        words = os.environ.get("DISTLAB_COLLECTOR", "").split()
        if len(words) != 3:
            return None
        return self._sent((words[0], int(words[1])), words[2], folder, participant)

    def _sent(
        self, address: tuple[str, int], key: str, folder: Path, participant: Participant
    ) -> SentRunFile | None:
        """Begins a file that another process writes; None, with a warning, if it is not reached."""
        try:
            return SentRunFile(
                address,
                key,
                folder,
                self._name,
                overwrite=self._overwrite,
                process=participant.index,
                processes=participant.count,
                clock_offset_ns=participant.clock.offset_ns,
            )
        except RecordError:
            raise
        except OSError as error:
            warn(
                f"The events of worker {participant.index} can't be sent: {shown_clause(error)}. "
                f"It records to {folder} on its own machine, {socket.gethostname()}: copy its file "
                "beside those of the others afterwards.",
                RuntimeWarning,
            )
            return None


def _offered(joined: ProcessGroup) -> tuple[int, str]:
    """Returns the port and the key under which the chief takes events of other machines."""
    global _collector
    if len({worker.host for worker in joined.workers}) == 1:
        return 0, ""
    if _collector is None:
        addresses = {link.getsockname()[0] for link in joined.links}
        _collector = Collector(addresses.pop() if len(addresses) == 1 else "")
        atexit.register(_collector.close, _END_SECONDS)
    return _collector.port, _collector.key


def _is_marked(folder: Path, mark: str) -> bool:
    """Returns whether a folder is that of the chief, which marked the lock of its file."""
    try:
        return lock_path(file_of(folder)).read_bytes() == mark.encode()
    except OSError:
        return False


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
