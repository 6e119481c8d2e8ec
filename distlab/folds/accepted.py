"""Checks of what folds and charts receive from a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab.events import Event, Unknown
from distlab.text.shown import shown


def require_columns(verb: str, columns: Any, kind: type, source: str) -> None:
    """Raises unless a value has all columns of a kind."""
    if not isinstance(columns, Mapping):
        raise ArgumentTypeError(
            f"{verb} takes the columns of a fold ({kind.__name__}), got {shown(columns)}. Pass "
            f"{source}."
        )
    required: frozenset[str] = kind.__required_keys__  # type: ignore[attr-defined]
    lacking = sorted(required - set(columns))
    if lacking:
        raise ArgumentTypeError(
            f"{verb} takes the columns of a fold ({kind.__name__}), and these lack "
            f"{shown(lacking[0])}: {shown(columns)}. Pass {source}."
        )


def require_number(
    verb: str, name: str, value: Any, *, least: int = 0, optional: bool = True
) -> None:
    """Raises unless a value is a whole number, or None where that is a default."""
    if optional and value is None:
        return
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if whole and value >= least:
        return
    raise (ArgumentValueError if whole else ArgumentTypeError)(
        f"{name} of {verb} must be a whole number of at least {least}, got {shown(value)}. Leave "
        "it out for the default."
    )


def checked(verb: str, events: Any) -> Iterator[Event | Unknown]:
    """Yields events, and raises at anything else."""
    if not isinstance(events, Sequence | Iterator) or isinstance(events, str | bytes):
        raise _no_event(verb, events)
    for event in events:
        if not isinstance(event, Event | Unknown):
            raise _no_event(verb, event)
        yield event


def _no_event(verb: str, value: Any) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"{verb} takes events, got {shown(value)}. Pass those of a run, such as run.events()."
    )
