"""The newest value of the loss."""

from __future__ import annotations

from typing import TypedDict

from distlab.folds import MetricColumns
from distlab.page.facts.amounts import NOTHING
from distlab.text.units import count_text, plain, value_text


class MetricFacts(TypedDict):
    """The tile of the loss on the Overview, or of the first metric without a loss.

    Attributes:
      loss: Its newest value.
      loss_name: Its name.
      loss_note: Its first value, or how many values are not finite.
      other_metrics: Whether there are metrics that are no loss.
    """

    loss: str
    loss_name: str
    loss_note: str
    other_metrics: bool


def metric_facts(metrics: MetricColumns) -> MetricFacts:
    """Returns the newest value of the loss, or else of the first metric.

    Args:
      metrics: The logged numbers.
    """
    names = metrics["name"]
    if not names:
        return {
            "loss": NOTHING,
            "loss_name": "loss",
            "loss_note": "nothing logged yet",
            "other_metrics": False,
        }
    place = next((place for place, name in enumerate(names) if "loss" in name.lower()), 0)
    first = float(metrics["value"][place][0])
    wrong = metrics["not_finite"][place]
    return {
        "loss": value_text(metrics["last"][place]),
        "loss_name": plain(names[place], 24),
        "loss_note": f"{count_text(wrong)} values are not finite"
        if wrong
        else f"from {value_text(first)} at the first log",
        "other_metrics": any("loss" not in name.lower() for name in names),
    }
