"""Runs side by side, as text and as tables for notebooks."""

from __future__ import annotations

from typing import Final, final

from distlab.events import Source
from distlab.folds import ComparisonColumns, Folds, compare
from distlab.page.comparison_tables import number_rows, setting_rows
from distlab.text.html import card
from distlab.text.units import aligned

_ALIKE: Final = "no setting differs"


@final
class Comparison:
    """Runs side by side; `Run.compare` returns it.

    Printed, or as the last line of a notebook's cell, it says first what differs in
    configuration, and then the numbers of all runs.

    Attributes:
      columns: The curves of the losses and rates, the settings and the numbers.
    """

    def __init__(self, columns: ComparisonColumns) -> None:
        self.columns = columns

    def __repr__(self) -> str:
        """Lists the settings that differ, and the numbers."""
        (_, *names), *differing = self._differing()
        rows = [("", *names), *differing, *number_rows(self.columns)[1:]]
        rows = [(*row, *[""] * (len(rows[-1]) - len(row))) for row in rows]
        first, *lines = aligned(rows)
        return "\n".join([first, *[_ALIKE] * (not differing), *lines])

    def _repr_html_(self) -> str:
        """Shows a table of the settings that differ, and one of the numbers, in notebooks."""
        (_, *names), *differing = self._differing()
        alike = "" if differing else _ALIKE
        settings = card("Configuration", alike, ("what differs", *names), differing)
        headings, *rows = number_rows(self.columns)
        numbers = card("Numbers", "", headings, rows)
        return f"<div>{settings}</div><div style='margin-top:8px'>{numbers}</div>"

    def _differing(self) -> list[tuple[str, ...]]:
        """Returns the headings, and the settings that differ."""
        return [row[:-1] for row in setting_rows(self.columns) if row[-1] != "same"]


def compare_runs(*runs: Source) -> Comparison:
    """Reads runs and compares them."""
    return Comparison(compare(*map(_read, runs)))


def _read(source: Source) -> Folds:
    folds = Folds()
    while folds.read(source):
        pass
    return folds
