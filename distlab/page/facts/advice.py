"""Advice on the Overview."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

from distlab.advice import evidence_text
from distlab.events import Advice
from distlab.text.units import count_text, plain

_MOST_ADVICE: Final = 12


class AdviceRow(TypedDict):
    """One piece of advice.

    Attributes:
      cause: What wastes time or memory.
      subject: Where.
      text: What happens.
      remedy: What to do about it.
      evidence: The numbers it rests on.
      steps: The steps it is about, empty for all.
      page: The page that shows it.
    """

    cause: str
    subject: str
    text: str
    remedy: str
    evidence: str
    steps: str
    page: str


class AdviceFacts(TypedDict):
    """The card of advice.

    Attributes:
      advice: The advice, the most expensive cause first.
      has_advice: Whether there is any.
      no_advice: Whether there is none.
    """

    advice: list[AdviceRow]
    has_advice: bool
    no_advice: bool


def advice_facts(advice: Sequence[Advice]) -> AdviceFacts:
    """Returns the advice in words."""
    return {
        "advice": [_row(one) for one in advice[:_MOST_ADVICE]],
        "has_advice": bool(advice),
        "no_advice": not advice,
    }


def _row(one: Advice) -> AdviceRow:
    steps = one.steps
    return {
        "cause": one.cause.replace("_", " "),
        "subject": plain(one.subject),
        "text": plain(one.text, 400),
        "remedy": plain(one.remedy, 400),
        "evidence": plain(evidence_text(one), 400),
        "steps": f"steps {count_text(steps[0])} to {count_text(steps[1])}" if steps else "",
        "page": one.page,
    }
