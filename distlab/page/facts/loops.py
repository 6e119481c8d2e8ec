"""Loops that can be controlled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from distlab.folds import LoopColumns
from distlab.page.loop_buttons import LoopRow
from distlab.text.units import plain


class LoopFacts(TypedDict):
    """The rows of buttons below the time bar.

    Attributes:
      loops: The loops of this process.
      has_loops: Whether there are any.
      loops_elsewhere: Loops of the training process, where that is another one.
    """

    loops: list[LoopRow]
    has_loops: bool
    loops_elsewhere: str


def loop_facts(rows: Sequence[LoopRow] | None, recorded: LoopColumns, *, live: bool) -> LoopFacts:
    """Returns the loops that have buttons, and those that would have them elsewhere."""
    elsewhere = [
        f"{plain(name)} is {state}"
        for name, state in zip(recorded["name"], recorded["state"], strict=True)
        if live and rows is None and state in {"running", "paused"}
    ]
    return {
        "loops": [{**row, "name": plain(row["name"])} for row in rows or ()],
        "has_loops": bool(rows),
        "loops_elsewhere": "; ".join(elsewhere),
    }
