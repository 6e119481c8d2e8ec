"""A recorded run as TensorBoard's event files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from distlab.errors import DistlabError
from distlab.events import RunEnd
from distlab.runs.damage import as_damage
from distlab.runs.exports import unwritten
from distlab.runs.recorded import Recorded, envelopes
from distlab.tracking.relay import Relay
from distlab.tracking.tensorboard import TensorBoard

_REMEDY: Final = 'run.export("events.jsonl") may write more of it'


def to_tensorboard(run: Recorded, logdir: str | os.PathLike[str]) -> Path:
    """Writes the event file of each process. See `distlab.Run.to_tensorboard`."""
    logger = TensorBoard(logdir)
    folder = Path(logdir)
    several = len(run.processes) > 1
    loggers = [logger]
    relays: dict[int, Relay] = {}
    ends: dict[int, RunEnd] = {}
    try:
        with as_damage(run.path, "written for TensorBoard", _REMEDY):
            for process, event in envelopes(run):
                if isinstance(event, RunEnd):
                    ends[process] = event
                    continue
                if process not in relays:
                    own = TensorBoard(folder / f"process-{process}") if several else logger
                    loggers.append(own)
                    relays[process] = Relay(own, run.path)
                relays[process].add(event)
            for process, relay in relays.items():
                relay.finish(ends.get(process))
    except DistlabError:
        raise
    except OSError as error:
        what = f"TensorBoard's files can't be written to {folder}, and lack what follows"
        raise unwritten(what, "a folder", error) from error
    finally:
        for one in loggers:
            with contextlib.suppress(OSError):  # a full disk was reported above
                one.close()
    return folder
