"""Doubts about programs that ran often enough to tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from distlab.events import Compile, Doubt
from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Ints

_FEWEST_STEPS: Final = 5


def doubts_about(columns: EvidenceColumns, about: str) -> Iterator[tuple[Compile, Doubt, Ints]]:
    """Yields a program, the first doubt of a kind about its function, and the function's steps.

    Programs of one function, such as one for the last batch, are one.
    """
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
