"""A recorded run as TensorBoard's event files."""

from __future__ import annotations

import os
from pathlib import Path

from distlab.errors import RecordError
from distlab.events import RunEnd
from distlab.runs.exports.recorded import Recorded, envelopes
from distlab.tracking.relay import Relay
from distlab.tracking.tensorboard import TensorBoard


def to_tensorboard(run: Recorded, logdir: str | os.PathLike[str]) -> Path:
    """Writes the event file of each process. See `distlab.Run.to_tensorboard`."""
    logger = TensorBoard(logdir)
    folder = Path(logdir)
    several = len(run.processes) > 1
    relays: dict[int, Relay] = {}
    ends: dict[int, RunEnd] = {}
    try:
        for process, event in envelopes(run):
            if isinstance(event, RunEnd):
                ends[process] = event
                continue
            if process not in relays:
                own = TensorBoard(folder / f"process-{process}") if several else logger
                relays[process] = Relay(own, run.path)
            relays[process].add(event)
        for process, relay in relays.items():
            relay.finish(ends.get(process))
    except OSError as error:
        raise RecordError(
            f"TensorBoard's files can't be written to {folder}: {error.strerror}. Name a folder "
            "that you may write."
        ) from error
    return folder
