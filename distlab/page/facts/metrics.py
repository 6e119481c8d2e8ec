"""The newest value of the loss, and which metrics the charts leave out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from distlab.charts.metrics import drawn_names
from distlab.folds import MetricColumns
from distlab.page.facts.amounts import NOTHING, Facts
from distlab.text.metric_names import by_interest, is_loss, is_other
from distlab.text.units import count_text, counted, plain, value_text

_MOST_NAMED: Final = 3


def metric_facts(metrics: MetricColumns) -> Facts:
    """Returns the newest value of the loss, or else of the first metric."""
    name, value, note = _loss(metrics)
    return {
        "loss": value,
        "loss_name": name,
        "loss_note": note,
        "other_metrics": not all(is_loss(name) for name in metrics["name"]),
        "losses_not_drawn": _not_drawn(metrics, is_loss, ("loss", "losses")),
        "others_not_drawn": _not_drawn(metrics, is_other, ("metric", "metrics")),
    }


def loss_text(metrics: MetricColumns) -> str:
    """Returns the newest and first value of the loss, or else of the first metric; "" for none."""
    name, value, note = _loss(metrics)
    return f"{name} {value}, {note}" if metrics["name"] else ""


def _loss(metrics: MetricColumns) -> tuple[str, str, str]:
    names = metrics["name"]
    if not names:
        return "loss", NOTHING, "nothing logged"
    shown = next(filter(is_loss, by_interest(names)), names[0])
    place = names.index(shown)
    wrong = metrics["not_finite"][place]
    note = f"from {value_text(metrics['first'][place])} at the first log"
    if wrong:
        note = f"{count_text(wrong)} values are not finite"
    return plain(shown, 24), value_text(metrics["last"][place]), note


def _not_drawn(
    metrics: MetricColumns, wanted: Callable[[str], bool], things: tuple[str, str]
) -> str:
    drawn = {*drawn_names(metrics, wanted)}
    every = [*metrics["name"], *metrics["without_curve"]]
    names = [name for name in every if wanted(name) and name not in drawn]
    if not names:
        return ""
    one, many = things
    listed = ", ".join(plain(name, 40) for name in names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    if more > 0:
        listed += f" and {count_text(more)} more"
    further = metrics["values_left_out"]
    if further:
        listed += f"; {counted(further, 'value')} of further names "
        listed += "is not counted" if further == 1 else "are not counted"
    are = f"other {one} is" if len(names) == 1 else f"other {many} are"
    return f'{count_text(len(names))} {are} not drawn: {listed}. run.to_pandas("metric") has all.'
