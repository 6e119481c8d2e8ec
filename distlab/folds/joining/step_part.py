"""A step of the run, as a further process took part in it."""

from __future__ import annotations

from distlab.events import Event


class StepPart(Event, frozen=True, kw_only=True, tag="step_part"):
    """A process that is not the strategy's first one dispatched a step; never stored.

    Attributes:
      step: Number of the step.
      strategy: Number of the strategy.
      examples: Examples of this process's replicas.
    """

    step: int
    strategy: int
    examples: int
