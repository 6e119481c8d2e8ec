"""What a damaged run file may hold: events that no recording makes, and that nothing can use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from distlab.errors import DistlabError, NotARunError
from distlab.text.shown import shown_clause


@contextlib.contextmanager
def told(path: Path, what: str, remedy: str) -> Iterator[None]:
    """Makes errors of a block, which reads a run's events, those of a damaged file.

    Args:
      path: The run's folder.
      what: What can't be done with the run, such as `written as .csv`.
      remedy: What to do instead, as a clause.

    Raises:
      NotARunError: Damage that looks like an event led to any error.
    """
    try:
        yield
    except (DistlabError, OSError, MemoryError):
        raise
    except Exception as error:
        raise NotARunError(
            f"The run in {path} can't be {what}, because it holds what no recording does "
            f"({type(error).__name__}: {shown_clause(error)}). Its file is damaged: {remedy}."
        ) from error
