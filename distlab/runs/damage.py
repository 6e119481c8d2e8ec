"""Errors about events in a damaged run file that no recording makes and nothing can use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from distlab.errors import DistlabError, NotARunError
from distlab.text.shown import shown_clause

EXPORT_HOLDS_MORE: Final = 'run.export("events.jsonl") may hold more of it'
"""The remedy where a run can't be shown or summed up: the events that can be read are written."""


@contextlib.contextmanager
def as_damage(path: Path | None, what: str, remedy: str) -> Iterator[None]:
    """Makes errors of a block, which reads a run's events, those of a damaged file."""
    try:
        yield
    except Exception as error:
        found = damage(error, path, what, remedy)
        if found is error:
            raise
        raise found from error


def damage(error: Exception, path: Path | None, what: str, remedy: str) -> Exception:
    """Returns the error of a damaged file for an error met in using its events."""
    if path is None or isinstance(error, DistlabError | OSError | MemoryError):
        return error
    return NotARunError(
        f"The run in {path} can't be {what}, because it holds what no recording does "
        f"({type(error).__name__}: {shown_clause(error)}). Its file is damaged: {remedy}."
    )
