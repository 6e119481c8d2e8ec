"""Gradients of tables that are combined whole, although a step uses few of their rows.

The trace of a function shows it: the gradient of `table[ids]` has at most as many rows that are
not zero as there are ids. A cause from 1 MB on, where an eighth of the rows or fewer are used.
"""

from __future__ import annotations

from typing import Final

from distlab.advice._columns import doubts_about
from distlab.advice._texts import at, new_advice
from distlab.events import Advice
from distlab.folds import EvidenceColumns
from distlab.text.bytes import bytes_text

CAUSE: Final = "sparse_gradient"


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds gradients that are mostly zero, in columns of `folds.Evidence`."""
    found = []
    for program, doubt, steps in doubts_about(columns, "sparse_gradient"):
        used, rows, size = (doubt.numbers[name] for name in ("used_rows", "rows", "bytes"))
        found.append(
            new_advice(
                CAUSE,
                doubt.because or f"function {program.function}",
                f"{program.function} combines the whole gradient of {doubt.because or 'a table'}, "
                f"{bytes_text(size)}, across replicas"
                f"{at(doubt.source)}, of which at most {used:,.0f} of {rows:,.0f} rows are not "
                f"zero: it sends {rows / max(used, 1):,.0f} times as much as it needs.",
                "Differentiate with respect to the rows that were looked up, all_gather those "
                "gradients and their ids, and add them to the table: table.at[ids].add(...).",
                evidence={"used_rows": used, "rows": rows, "bytes": size, "steps": len(steps)},
                page="reductions",
                share=0.0,
                steps=steps,
                time_ns=program.time_ns,
                source=doubt.source,
            )
        )
    return found
