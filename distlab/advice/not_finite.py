"""A metric that is NaN or infinite from some step on.

A value that is not finite once, such as the norm of the first gradient, is none: it must be so
in the last three values.
"""

from __future__ import annotations

from typing import Final

from distlab.advice._texts import new_advice
from distlab.events import Advice
from distlab.folds import EvidenceColumns

CAUSE: Final = "not_finite"

_FEWEST: Final = 3


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds metrics that stay NaN or infinite, in columns of `folds.Evidence`."""
    return [
        new_advice(
            CAUSE,
            f"metric {name}",
            f"{name} is NaN or infinite from step {since.step:,} on, in {since.values:,} values.",
            "Look at the step before: a learning rate that is too large, a mean over no examples "
            "(dl.nn.compute_average_loss counts each example once), or a logarithm of zero. "
            "jax_debug_nans stops at the operation.",
            evidence={"first_step": since.step, "values": since.values},
            page="overview",
            share=1.0,
            steps=[since.step, since.last_step],
        )
        for name, since in columns["not_finite"].items()
        if since.values >= _FEWEST
    ]
