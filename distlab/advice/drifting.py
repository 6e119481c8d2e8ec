"""Copies of one state that come apart, since each replica updates its own.

The trace of a function shows which states each replica assigns by itself; the copies of those are
compared at steps 1, 2, 4, 8 and so on. They must differ in each comparison, and in three or more:
replicas that train apart for some steps and then average meet again.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from distlab.advice._texts import at, new_advice, percent_text
from distlab.events import Advice, Doubt
from distlab.folds import EvidenceColumns
from distlab.folds.evidence import Compared

CAUSE: Final = "drifting_copies"

_FEWEST: Final = 3
_COMBINE: Final = (
    "Combine what it is updated with, such as the gradients, before the update: "
    'distlab.get_replica_context().all_reduce("MEAN", gradients).'
)
_SAME_FOR_ALL: Final = (
    "Compute what all replicas assign without the replica's number: noise on weights, for example, "
    "from a key that is the same on all of them."
)
_LEAST_PERCENT: Final = 0.005
"""Below it a share would be rounded to 0 %."""


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds states whose copies differ, in columns of `folds.Evidence`."""
    programs = {program.program: program for program in columns["compiles"]}
    apart: dict[tuple[int, str], list[tuple[Doubt, Compared]]] = defaultdict(list)
    trains: set[tuple[int, str]] = set()
    for (number, subject), compared in columns["copies_compared"].items():
        program = programs.get(number)
        if program is None or compared.met or compared.number < _FEWEST:
            continue
        doubts = [d for d in program.doubts if (d.about, d.subject) == ("own_updates", subject)]
        if program.mode == "eager":  # it has no trace to doubt
            line = compared.last.source
            doubts = [Doubt(about="own_updates", subject=subject, because="", source=line)]
        if doubts and compared.last.differing:
            key = program.strategy, program.function
            apart[key].append((doubts[0], compared))
            trains |= {key} if program.trains else set()
    return [_drift(key[1], found, trains=key in trains) for key, found in apart.items()]


def _drift(function: str, found: list[tuple[Doubt, Compared]], *, trains: bool) -> Advice:
    doubt, compared = found[0]
    first = compared.first or compared.last
    numbered = doubt.because == "the replica's number"
    own = "number" if numbered else doubt.because
    why = (
        f"{function} updates them with what each replica computes from its own {own} "
        f"only{at(doubt.source)}"
        if doubt.because
        else f"in {function}, which runs eagerly, each replica assigns a value of its own"
        f"{at(doubt.source)}"
    )
    remedies = [_COMBINE] * (trains or not numbered) + [_SAME_FOR_ALL] * numbered
    by = compared.last.largest
    most = percent_text(by) if by >= _LEAST_PERCENT else f"{by:.1g}"
    others = _others([other.subject for other, _ in found[1:]])
    return new_advice(
        CAUSE,
        doubt.subject,
        f"The copies of {doubt.subject} differ between replicas from step {first.step} on, by up "
        f"to {most} of its largest number: {why}.{others}",
        f"{' '.join(remedies)} A value that is to be each replica's own "
        "belongs in a variable with synchronization=ON_READ.",
        evidence={
            "first_step": first.step,
            "differing_replicas": len(compared.last.differing),
            "largest_difference_share": compared.last.largest,
            "states": len(found),
        },
        page="placement",
        share=1.0,
        steps=[first.step, compared.last.step],
        time_ns=first.time_ns,
        source=doubt.source,
    )


def _others(subjects: list[str]) -> str:
    if not subjects:
        return ""
    more = f" and {len(subjects) - 1} more" if len(subjects) > 1 else ""
    return f" So do those of {subjects[0]}{more}."
