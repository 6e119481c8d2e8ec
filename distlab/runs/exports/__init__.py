"""A recorded run as a file for other tools. One idea a file; `WRITERS` names them by suffix."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from distlab.errors import ArgumentTypeError, ArgumentValueError, RecordError
from distlab.events import Chunk, Event, Unknown
from distlab.runs.exports import lines, page, parquet, trace


class Recorded(Protocol):
    """What an export needs of a recorded run."""

    path: Path
    meta: dict[str, Any]

    def events(self, kind: str | None = None) -> Iterator[Event | Unknown]:
        """Goes through the events of a kind, by default through all."""

    def since(self, cursor: int, limit: int = 10_000) -> Chunk:
        """Returns up to `limit` events from `cursor` on."""


WRITERS: Final[dict[str, Callable[[Recorded, Path], None]]] = {
    ".html": page.write,
    ".json": trace.write,
    ".jsonl": lines.write,
    ".parquet": parquet.write,
}


def export(run: Recorded, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Writes a run to a file. See `distlab.Run.export`."""
    if not isinstance(path, str | os.PathLike):
        raise ArgumentTypeError(
            f"export needs the file to write, got a {type(path).__name__}: {path!r:.80}. Write "
            'run.export("trace.json").'
        )
    target = Path(path)
    write = WRITERS.get(target.suffix)
    if write is None:
        raise ArgumentValueError(
            f"export writes {', '.join(WRITERS)} files, got {target.name!r}. Name it "
            "run.html for a page, trace.json for Perfetto, events.jsonl for one event a line, or "
            "events.parquet."
        )
    if target.exists() and not overwrite:
        raise RecordError(
            f"{target} exists already. Name another file, or pass overwrite=True to replace it."
        )
    # Who opens the file finds all of it or none.
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        write(run, unfinished)
        unfinished.replace(target)
    except RecordError:
        raise
    except OSError as error:
        raise RecordError(
            f"{target} can't be written: {error.strerror}. Name a file in a folder that you may "
            "write."
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return target
