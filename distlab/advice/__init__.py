"""Advice: what a run could do better, with numbers and a remedy.

`advise` looks at a recorded run, or at one that goes on, and says what it found,
the dearest first. Each cause is one file: a pure function over the columns of
`folds.Evidence`, whose thresholds and reasons stand at its top. docs/advice.md
explains them for readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from distlab.advice import (
    algorithms,
    host_transfers,
    memory,
    observer,
    recompiling,
    reducing,
    stragglers,
    uneven,
    waiting_input,
)
from distlab.advice._finding import evidence_text
from distlab.errors import ArgumentTypeError
from distlab.events import Advice, Event, Source, Unknown
from distlab.folds import Evidence, EvidenceColumns

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
    observer.find,
)


def advise(source: Source | Iterable[Event | Unknown], cursor: int = 0) -> list[Advice]:
    """Says what a run could do better.

    Args:
      source: a `distlab.Run`, a recording's ring, anything else with `since`, or
        events, oldest first. Of a long run the last events count.
      cursor: where to begin in a source; what stands from before is known anyway.

    Returns:
      What was found, what costs the most first; empty when nothing was.

    Raises:
      ArgumentTypeError: it is nothing to read events from.
    """
    evidence = Evidence()
    for events in _chunks(source, cursor):
        evidence.add([event for event in events if type(event) in Evidence.KINDS])
    return advise_on(evidence.columns())


def advise_on(columns: EvidenceColumns) -> list[Advice]:
    """Says what a run could do better, from the columns of `folds.Evidence`.

    Args:
      columns: the columns.

    Returns:
      As `advise`.
    """
    found = [one for find in _FINDERS for one in find(columns)]
    return sorted(found, key=lambda one: -one.share)


def _chunks(source: Any, cursor: int) -> Iterator[list[Any]]:
    if not hasattr(source, "since"):
        try:
            events = list(source)
        except TypeError:
            raise ArgumentTypeError(
                f"Advice is made from a run or its events, got a {type(source).__name__}: "
                f"{source!r:.80}. Give what distlab.Run.open(folder) returned."
            ) from None
        yield events
        return
    at = 0
    while True:
        chunk = source.since(at)
        if not chunk.events:
            return
        # Sources count events one by one, but for what they lost: that was before the first.
        begin = chunk.cursor - len(chunk.events)
        old = max(0, min(cursor - begin, len(chunk.events)))
        yield [e for e in chunk.events[:old] if getattr(e, "STANDING", False)]
        yield chunk.events[old:]
        at = chunk.cursor
