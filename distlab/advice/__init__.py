"""Advice: what slows a run down, with numbers and a remedy.

`advise` analyses a recorded run, or one that is still recorded, and returns its findings,
the most expensive first. Each cause is one file: a pure function over the columns of
`folds.Evidence`, with its thresholds and their reasons at its top. docs/advice.md explains
the causes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from distlab.advice import (
    algorithms,
    host_transfers,
    memory,
    not_finite,
    observer,
    own_python,
    recompiling,
    reducing,
    stragglers,
    uneven,
    waiting_input,
)
from distlab.advice._texts import evidence_text
from distlab.errors import ArgumentTypeError
from distlab.events import Advice, Chunk, Event, Source, Unknown
from distlab.folds import Evidence, EvidenceColumns
from distlab.text.shown import shown

__all__ = ["CAUSES", "Advice", "advise", "advise_on", "evidence_text"]

CAUSES: Final = (
    stragglers.CAUSE,
    waiting_input.CAUSE,
    recompiling.CAUSE,
    uneven.CAUSE,
    reducing.LARGE,
    reducing.REPEATED,
    reducing.MANY,
    host_transfers.CAUSE,
    algorithms.CAUSE,
    memory.CAUSE,
    own_python.CAUSE,
    not_finite.CAUSE,
    observer.CAUSE,
)
"""All causes that an advice may name."""

_FINDERS: Final = (
    stragglers.find,
    waiting_input.find,
    recompiling.find,
    uneven.find,
    reducing.find,
    host_transfers.find,
    algorithms.find,
    memory.find,
    own_python.find,
    not_finite.find,
    observer.find,
)


def advise(source: Source | Iterable[Event | Unknown], cursor: int = 0) -> list[Advice]:
    """Returns what slows a run down.

    Args:
      source: A `distlab.Run`, a recording's ring, another source of events, or events,
        oldest first. Of a long run the last events count.
      cursor: Position in a source of the first event to use; of the events before it
        only those are used that later events refer to.

    Returns:
      The findings, the most expensive first; empty when there are none.

    Raises:
      ArgumentTypeError: `source` is neither a source of events nor iterable.

    Example:
      >>> from distlab.advice import advise
      >>> from distlab.events import Lost
      >>> (found,) = advise([Lost(time_ns=0, count=123, reason="disk full")])
      >>> found.cause, found.text
      ('recording_cost', '123 events were not recorded.')
    """
    evidence = Evidence()
    for events in _chunks(source, cursor):
        known = [event for event in events if isinstance(event, Event)]
        evidence.add([event for event in known if type(event) in Evidence.KINDS])
    return advise_on(evidence.columns())


def advise_on(columns: EvidenceColumns) -> list[Advice]:
    """Returns what slows a run down, from the evidence of its fold.

    Args:
      columns: Columns of `folds.Evidence`.

    Returns:
      The findings, as `advise` returns them.

    Example:
      >>> from distlab.advice import advise_on
      >>> from distlab.folds import Folds
      >>> advise_on(Folds().columns("evidence"))
      []
    """
    found = [advice for find in _FINDERS for advice in find(columns)]
    return sorted(found, key=lambda advice: -advice.share)


def _chunks(
    source: Source | Iterable[Event | Unknown], cursor: int
) -> Iterator[list[Event | Unknown]]:
    since: Callable[[int], Chunk] | None = getattr(source, "since", None)
    if since is None:
        if not isinstance(source, Iterable):
            raise ArgumentTypeError(
                f"Advice needs a run or its events, got {type(source).__name__}: {shown(source)}. "
                "Pass what distlab.Run.open(folder) returned."
            )
        yield list(source)
        return
    at = 0
    while True:
        chunk = since(at)
        if not chunk.events:
            return
        # Sources number events one by one, except for losses, which precede the first.
        begin = chunk.cursor - len(chunk.events)
        old = max(0, min(cursor - begin, len(chunk.events)))
        yield [e for e in chunk.events[:old] if isinstance(e, Event) and e.STANDING]
        yield chunk.events[old:]
        at = chunk.cursor
