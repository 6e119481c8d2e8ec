"""This process among those that record the run, and its file in the run's folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from distlab.errors import RecordError, WorkerError
from distlab.processes import group
from distlab.processes.group import ProcessGroup
from distlab.recording.clocks import Clock, ClockWatch, compared
from distlab.runs.run_file import RunFile
from distlab.text.shown import shown_text

_BEGIN_SECONDS: Final = 60.0
"""How long a process waits for process 0 to begin the run."""


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
    """Returns this process among those that it has joined, if it has.

    Args:
      clock: Its clock beside that of process 0; None where both are one.
      meeting: The name under which the processes compare their clocks again.
    """
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
) -> tuple[RunFile, Participant]:
    """Begins this process's file of a run.

    Of several processes the first one owns the folder: it refuses or clears it, and the others
    wait for that before they begin their files.

    Args:
      folder: The run's folder.
      name: The run's name.
      overwrite: Whether a run that the folder already holds is replaced.
      process: Number of the process in a program of one process.

    Raises:
      RecordError: The folder can't be created or written, or holds a run; or process 0 did not
        begin the run.
    """
    joined = group.current()
    if joined is None:
        return _file_of_one(folder, name, overwrite=overwrite, process=process), Participant()
    meeting = f"record {folder}"
    if not joined.is_chief:
        _await_the_first(joined, meeting, folder)
        participant = _beside_the_first(joined, meeting)
        return _file(folder, name, participant, overwrite=overwrite), participant
    try:
        file = _file(folder, name, present(), overwrite=overwrite)
    except RecordError as error:
        joined.from_chief(meeting, json.dumps({"refused": str(error)}))
        raise
    joined.from_chief(meeting, json.dumps({"refused": ""}))
    return file, _beside_the_first(joined, meeting)


def _file_of_one(folder: Path, name: str, *, overwrite: bool, process: int) -> RunFile:
    try:
        return RunFile(folder, name, overwrite=overwrite, process=process)
    except RecordError as error:
        if "TF_CONFIG" not in os.environ:
            raise
        raise RecordError(
            f"{error} The workers of a cluster record one run together where each has made its "
            "MultiWorkerMirroredStrategy before it calls record."
        ) from error


def _file(folder: Path, name: str, participant: Participant, *, overwrite: bool) -> RunFile:
    return RunFile(
        folder,
        name,
        overwrite=overwrite,
        process=participant.index,
        processes=participant.count,
        clock_offset_ns=participant.clock.offset_ns,
    )


def _await_the_first(joined: ProcessGroup, meeting: str, folder: Path) -> None:
    """Waits until process 0 has begun the run.

    Raises:
      RecordError: It refused to, or did not call `record`.
    """
    try:
        said = json.loads(joined.from_chief(meeting, None, _BEGIN_SECONDS))
    except WorkerError as error:
        raise RecordError(
            f"A run of several processes is begun by worker 0, which has not called "
            f'record("{folder}") within {_BEGIN_SECONDS:g} s: {shown_text(error)} Call record in '
            "all workers with one folder, or in worker 0 alone."
        ) from error
    if said["refused"]:
        raise RecordError(f"Worker 0 could not begin the run. {said['refused']}")


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
    """Compares clocks again while a recording goes on; None where there is but one clock.

    Args:
      participant: This process among those that record the run.
      note: Is called with each new comparison.
    """
    joined = group.current()
    if joined is None or not participant.meeting:
        return None
    return ClockWatch(joined, participant.meeting, note)
