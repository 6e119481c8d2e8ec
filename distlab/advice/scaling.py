"""Gradients that are too large by the number of replicas, or in which examples weigh unequal.

Both follow from the trace of a function. Gradients of each replica's mean loss add up to the mean
gradient times the number of replicas; optimizers that divide by the gradients' size, as Adam does,
are no cause. Averages of means over different numbers of examples are one where that happens in a
fifth of the function's steps: a partial last batch is harmless.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from distlab.advice._columns import doubts_about
from distlab.advice._texts import at, new_advice, percent_text
from distlab.events import Advice
from distlab.folds import EvidenceColumns

SUM: Final = "sum_of_means"
MEAN: Final = "mean_of_unequal_means"

_OFTEN: Final = 0.2
_UNEQUAL: Final = 1.5


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds gradients of a wrong scale, in columns of `folds.Evidence`."""
    return [*_sums(columns), *_means(columns)]


def _sums(columns: EvidenceColumns) -> list[Advice]:
    return [
        new_advice(
            SUM,
            f"function {doubt.subject}",
            f"{doubt.subject} adds up the gradients of each replica's mean loss{at(doubt.source)}: "
            f"its updates are {doubt.numbers['times']:.0f} times the mean gradient's.",
            'Use all_reduce("MEAN", gradients), or divide the loss by the global batch size: '
            "dl.nn.compute_average_loss(losses, global_batch_size=...).",
            evidence={"times_too_large": doubt.numbers["times"], "steps": len(steps)},
            page="reductions",
            share=1.0,
            steps=steps,
            time_ns=program.time_ns,
            source=doubt.source,
        )
        for program, doubt, steps in doubts_about(columns, "sum_of_means")
    ]


def _means(columns: EvidenceColumns) -> list[Advice]:
    found = []
    for program, doubt, steps in doubts_about(columns, "mean_of_means"):
        all_programs = [
            one.program
            for one in columns["compiles"]
            if (one.strategy, one.function) == (program.strategy, program.function)
        ]
        share = len(steps) / max(int(np.isin(columns["steps"]["program"], all_programs).sum()), 1)
        times = doubt.numbers["most"] / max(doubt.numbers["fewest"], 1.0)
        if share < _OFTEN or times < _UNEQUAL:
            continue
        found.append(
            new_advice(
                MEAN,
                f"function {doubt.subject}",
                f"{doubt.subject} averages the gradients of means over different numbers of "
                f"examples{at(doubt.source)}, in {percent_text(share)} of its steps: an example of "
                f"the smallest part counts {times:.1f} times as much as one of the largest.",
                "Divide the loss by the global batch size, dl.nn.compute_average_loss(losses, "
                'global_batch_size=...), and use all_reduce("SUM", gradients).',
                evidence={"times": times, "share": share, "steps": len(steps)},
                page="batches",
                share=share,
                steps=steps,
                time_ns=program.time_ns,
                source=doubt.source,
            )
        )
    return found
