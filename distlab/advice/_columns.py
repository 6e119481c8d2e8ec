"""Selections from the evidence: batches of each dataset, doubts about programs, busiest lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from distlab.events import Compile, Doubt
from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Ints


def batches_by_dataset(columns: EvidenceColumns) -> Iterator[tuple[str, Ints]]:
    """Yields each dataset's name and rows; those that one line distributes are one."""
    batches = columns["batches"]
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, (number, source) in enumerate(
        zip(batches["dataset"].tolist(), batches["source"], strict=True)
    ):
        rows_of[f"dataset at {source}" if source else f"dataset {number}"].append(row)
    for name, rows in rows_of.items():
        yield name, np.array(rows)


_FEWEST_STEPS: Final = 5


def doubts_about(columns: EvidenceColumns, about: str) -> Iterator[tuple[Compile, Doubt, Ints]]:
    """Yields a program, the first doubt of a kind about its function, and the function's steps."""
    doubted: dict[tuple[int, str, str], tuple[Compile, Doubt]] = {}
    programs: dict[tuple[int, str, str], list[int]] = {}
    for program in columns["compiles"]:
        function = program.strategy, program.function, program.source
        for doubt in program.doubts:
            if doubt.about == about:
                doubted.setdefault(function, (program, doubt))
                programs.setdefault(function, []).append(program.program)
    steps = columns["steps"]
    for function, (program, doubt) in doubted.items():
        own = steps["step"][np.isin(steps["program"], programs[function])]
        if len(own) >= _FEWEST_STEPS:
            yield program, doubt, own


def line_of_most(lines: Iterable[str], amounts: Iterable[float]) -> str:
    """Returns the line with the largest sum; empty where lines are not known."""
    total: dict[str, float] = defaultdict(float)
    for line, amount in zip(lines, amounts, strict=True):
        total[line] += amount
    return max(total, key=total.__getitem__, default="")
