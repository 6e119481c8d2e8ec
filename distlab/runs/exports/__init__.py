"""A recorded run as a file for other tools: one file a format, listed in `FORMATS`."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from distlab.errors import (
    ArgumentValueError,
    DistlabError,
    MissingExtraError,
    RecordError,
)
from distlab.runs.damage import as_damage
from distlab.runs.exports import lines, trace
from distlab.runs.recorded import Recorded
from distlab.text.paths import at_home, path_refusal


class Format(NamedTuple):
    """A file format that a run can be exported to; `example` is a file name for messages.

    A format with `parts` also holds a part of a run.
    """

    suffix: str
    example: str
    text: str
    write: Callable[..., None]
    parts: bool = False


def _write_page(run: Recorded, path: Path) -> None:
    try:
        report = import_module("distlab.page.report")
    except ImportError as error:
        raise MissingExtraError(
            f"An HTML page needs the dashboard ({error.name} is missing). Install it: "
            'pip install "distlab[dashboard]".'
        ) from error
    report.write(run, run.path.name, path)


FORMATS: Final = (
    Format(".html", "run.html", "the dashboard's page, which opens without a server", _write_page),
    Format(
        ".json",
        "trace.json",
        "a timeline for ui.perfetto.dev and Chrome",
        trace.write,
        parts=True,
    ),
    Format(
        ".json.gz",
        "trace.json.gz",
        "the same timeline, compressed",
        partial(trace.write, compressed=True),
        parts=True,
    ),
    Format(".jsonl", "events.jsonl", "one event a line, as JSON", lines.write),
    Format(
        ".parquet",
        "events.parquet",
        "one event a row (needs pip install pyarrow)",
        lines.write_parquet,
    ),
)


def export(
    run: Recorded,
    path: str | os.PathLike[str],
    *,
    start: float | None = None,
    end: float | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes a run, or a part of its timeline, to a file. See `distlab.Run.export`."""
    if refusal := path_refusal(path, "export"):
        raise ArgumentValueError(refusal)
    target = Path(at_home(os.fspath(path)))
    chosen = next((one for one in FORMATS if target.name.endswith(one.suffix)), None)
    if chosen is None:
        raise ArgumentValueError(
            f"export writes {', '.join(known.suffix for known in FORMATS)} files, got "
            f"{target.name!r}. Use a name such as {', '.join(one.example for one in FORMATS)}."
        )
    part = {name: time for name, time in (("start", start), ("end", end)) if time is not None}
    if part and not chosen.parts:
        raise ArgumentValueError(
            f"{' and '.join(part)} choose a part of a timeline, got {target.name!r}, which has the "
            "whole run. Export a file such as trace.json, or leave it out."
        )
    # A file under its final name is always complete.
    unfinished = target.with_name(f".distlab-export-{os.getpid()}-{threading.get_ident()}")
    try:
        _require_free(target, overwrite)
        with as_damage(
            run.path, f"written as {target.suffix}", "another format may hold more of it"
        ):
            chosen.write(run, unfinished, **part)
        unfinished.replace(target)
    except DistlabError:
        raise
    except OSError as error:
        raise unwritten(f"{target} can't be written", "a file", error) from error
    finally:
        with contextlib.suppress(OSError):  # no file can have the name
            unfinished.unlink(missing_ok=True)
    return target


def unwritten(what: str, place: str, error: OSError) -> RecordError:
    """Returns the error to raise instead of one of the operating system."""
    # The words of pyarrow's errors name the file that is written first.
    why = os.strerror(error.errno) if error.errno else error.strerror
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RecordError(f"{what}: {why}. Free space there, or name {place} on another disk.")
    within = f"{place} in a folder" if place == "a file" else place
    return RecordError(f"{what}: {why}. Name {within} that you can write to.")


def _require_free(target: Path, overwrite: bool) -> None:
    """Checks that a file may be written; raises OSError where no file can have the name."""
    if target.exists() and not target.is_file():
        raise RecordError(f"{target} is no regular file, so it is not replaced. Name another file.")
    if target.exists() and not overwrite:
        raise RecordError(
            f"{target} exists already. Name another file, or pass overwrite=True (--overwrite of "
            "distlab export) to replace it."
        )
