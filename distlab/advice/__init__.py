"""Advice: what a run computes wrongly and what slows it down, with numbers and a remedy.

`advise` analyses a recorded run, or one that is still recorded, and returns its findings: what is
wrong first, then the most expensive. Each cause is one file: a pure function over the columns of
`folds.Evidence`, with its thresholds and their reasons at its top. docs/advice.md explains
the causes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from distlab.advice import (
    algorithms,
    compiling,
    drifting,
    eager_mode,
    host_transfers,
    memory,
    nearly_empty,
    not_finite,
    observer,
    ordering,
    own_python,
    recompiling,
    reducing,
    same_on_all,
    scaling,
    slow_worker,
    sparse,
    stragglers,
    uneven,
    waiting_input,
)
from distlab.advice._shares import period_seconds
from distlab.advice._texts import evidence_text
from distlab.advice.meshes import gathered, repeated_work, undivided
from distlab.errors import ArgumentTypeError
from distlab.events import Advice, Chunk, Compile, Envelope, Event, Source, Unknown
from distlab.folds import Evidence, EvidenceColumns, Join, WorkerColumns, Workers
from distlab.text.shown import shown

__all__ = ["CAUSES", "Advice", "advise", "advise_on", "advise_on_program", "evidence_text"]

WRONG: Final = (
    drifting.CAUSE,
    same_on_all.EXAMPLES,
    same_on_all.RANDOM,
    scaling.SUM,
    scaling.MEAN,
    ordering.CAUSE,
    not_finite.CAUSE,
)
"""Causes for which a run computes something else than it should; they come first."""

CAUSES: Final = (
    *WRONG,
    stragglers.CAUSE,
    slow_worker.CAUSE,
    slow_worker.INPUT,
    waiting_input.CAUSE,
    recompiling.CAUSE,
    compiling.CAUSE,
    eager_mode.CAUSE,
    uneven.CAUSE,
    nearly_empty.CAUSE,
    reducing.LARGE,
    reducing.REPEATED,
    reducing.MANY,
    sparse.CAUSE,
    host_transfers.CAUSE,
    algorithms.CAUSE,
    memory.CAUSE,
    repeated_work.CAUSE,
    undivided.CAUSE,
    gathered.SLICED,
    gathered.BATCH,
    own_python.CAUSE,
    observer.CAUSE,
)
"""All causes that an advice may name."""

_FINDERS: Final = (
    drifting.find,
    same_on_all.find,
    scaling.find,
    ordering.find,
    stragglers.find,
    waiting_input.find,
    recompiling.find,
    compiling.find,
    eager_mode.find,
    uneven.find,
    nearly_empty.find,
    reducing.find,
    sparse.find,
    host_transfers.find,
    algorithms.find,
    memory.find,
    not_finite.find,
    observer.find,
)


_ON_PROGRAMS: Final = (
    repeated_work.on_program,
    undivided.on_program,
    gathered.sliced,
    gathered.batch,
)

_FEWEST_STEPS: Final = 5


def advise_on_program(program: Compile) -> list[Advice]:
    """Returns what a program on a mesh repeats, gathers or holds more often than it needs to.

    Args:
      program: The event of its compilation.

    Example:
      >>> import distlab as dl, jax
      >>> from distlab.advice import advise_on_program
      >>> dl.program(jax.jit(lambda x: 2 * x), jax.numpy.ones(3)).advice()
      []
    """
    found = (find(program) for find in _ON_PROGRAMS)
    return [advice for advice in found if advice is not None]


def _on_mesh_programs(columns: EvidenceColumns) -> list[Advice]:
    """Advises on the last program of each function on a mesh that took some steps."""
    steps = Counter(columns["steps"]["program"].tolist())
    taken = [one for one in columns["compiles"] if steps[one.program] >= _FEWEST_STEPS]
    observed = {one.function: one for one in taken if one.strategy in columns["meshes"]}
    found = [advice for one in observed.values() for advice in advise_on_program(one)]
    # XLA divides the work along a replica's devices as variables lie.
    split = {one.function: one for one in taken if one.strategy in columns["several"]}
    return found + [one for one in map(repeated_work.on_program, split.values()) if one is not None]


def advise(source: Source | Iterable[Event | Unknown], cursor: int = 0) -> list[Advice]:
    """Returns what a run computes wrongly, and what slows it down.

    Args:
      source: A `distlab.Run`, a recording's ring, another source of events, or events,
        oldest first. Of a long run the last events count.
      cursor: Position in a source of the first event to use; of the events before it
        only those are used that later events refer to.

    Returns:
      The findings: what is wrong, then what costs the most; empty when there are none.

    Raises:
      ArgumentTypeError: `source` is neither a source of events nor iterable.

    Example:
      >>> from distlab.advice import advise
      >>> from distlab.events import Lost
      >>> (found,) = advise([Lost(time_ns=0, count=123, reason="disk full")])
      >>> found.cause, found.text
      ('recording_cost', '123 events were not recorded.')
    """
    evidence, workers, join = Evidence(), Workers(), Join()
    for envelopes in _chunks(source, cursor):
        known = [envelope for envelope in envelopes if isinstance(envelope.event, Event)]
        workers.add(known)
        evidence.add([event for event in join.add(known) if type(event) in Evidence.KINDS])
    return advise_on(evidence.columns(), workers.columns())


def advise_on(columns: EvidenceColumns, workers: WorkerColumns | None = None) -> list[Advice]:
    """Returns what `advise` returns, from the evidence of its folds.

    Args:
      columns: Columns of `folds.Evidence`.
      workers: Columns of `folds.Workers`, for a run of several processes.

    Returns:
      The findings, as `advise` returns them.

    Example:
      >>> from distlab.advice import advise_on
      >>> from distlab.folds import Folds
      >>> advise_on(Folds().columns("evidence"))
      []
    """
    found = [advice for find in _FINDERS for advice in find(columns)]
    found += own_python.find(columns, workers)
    found += _on_mesh_programs(columns)
    if workers is not None:
        found += slow_worker.find(columns, workers)
    # Threads of a coordinator overlap: what a step of one of them saves is more than a step takes.
    most = period_seconds(columns)
    found = [msgspec.structs.replace(one, saves_s=min(one.saves_s, most)) for one in found]
    return sorted(found, key=_rank)


def _rank(advice: Advice) -> tuple[bool, float, float]:
    """Returns what sorts advice: what is wrong, then what saves the most, then its share."""
    return advice.cause not in WRONG, -advice.saves_s, -advice.share


def _chunks(source: Source | Iterable[Event | Unknown], cursor: int) -> Iterator[list[Envelope]]:
    since: Callable[[int], Chunk] | None = getattr(source, "since", None)
    if since is None:
        if not isinstance(source, Iterable):
            raise ArgumentTypeError(
                f"Advice needs a run or its events, got {type(source).__name__}: {shown(source)}. "
                "Pass what distlab.Run.open(folder) returned."
            )
        yield [Envelope(0, event) for event in source]
        return
    at = 0
    while True:
        chunk = since(at)
        if not chunk.events:
            return
        # Sources number events one by one, except for losses, which precede the first.
        begin = chunk.cursor - len(chunk.events)
        old = max(0, min(cursor - begin, len(chunk.events)))
        envelopes = list(chunk.envelopes())
        yield [
            one for one in envelopes[:old] if isinstance(one.event, Event) and one.event.STANDING
        ]
        yield envelopes[old:]
        at = chunk.cursor
