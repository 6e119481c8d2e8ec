"""Kinds of reductions."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from distlab.folds import ReductionColumns
from distlab.text.bytes import bytes_text
from distlab.text.units import count_text, plain


class ReductionFacts(TypedDict):
    """The note below the table of reductions.

    Attributes:
      reductions_left_out: What the table leaves out, empty for nothing.
    """

    reductions_left_out: str


class ReductionRow(NamedTuple):
    """One kind of reduction as text."""

    kind: str
    where: str
    times: str
    size: str


def reduction_facts(reductions: ReductionColumns) -> ReductionFacts:
    """Returns what the table of reductions leaves out."""
    left_out = reductions["rows_left_out"]
    return {
        "reductions_left_out": f"{count_text(left_out)} reductions called from Python, of further "
        "kinds, are not counted here."
        if left_out
        else ""
    }


def reduction_rows(reductions: ReductionColumns) -> list[ReductionRow]:
    """Returns a short row for each kind of reduction; lines of one program are one kind."""
    counts: dict[tuple[str, str, bool, int], int] = {}
    kinds = zip(
        reductions["kind"],
        reductions["where"],
        reductions["at_least"],
        reductions["bytes"],
        strict=True,
    )
    for kind, count in zip(kinds, reductions["count"], strict=True):
        counts[kind] = counts.get(kind, 0) + count
    return [
        ReductionRow(
            plain(kind),
            plain(where),
            f"{'at least ' if at_least else ''}{count_text(count)}",
            bytes_text(size),
        )
        for (kind, where, at_least, size), count in counts.items()
    ]
