"""Runs side by side, as text and as tables for notebooks."""

from __future__ import annotations

from typing import Final, final

from distlab.events import Source
from distlab.folds import ComparisonColumns, Folds, compare
from distlab.page.comparison_tables import number_rows, setting_lines
from distlab.text.html import card
from distlab.text.units import plain

_MOST_NAME: Final = 32


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
        rows = [("", *self._names), *self._differing(), *number_rows(self.columns)]
        rows = [(*row, *[""] * (len(rows[-1]) - len(row))) for row in rows]
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([lines[0], *self._alike(), *lines[1:]])

    def _repr_html_(self) -> str:
        """Shows a table of the settings that differ, and one of the numbers, in notebooks."""
        names, differing = self._names, self._differing()
        alike = "".join(self._alike())
        settings = card("Configuration", alike, ("what differs", *names), differing)
        ratio = ("second / first",) if len(self._names) == 2 else ()
        headings = ("of the whole run", *names, *ratio)
        numbers = card("Numbers", "", headings, number_rows(self.columns))
        return f"<div>{settings}</div><div style='margin-top:8px'>{numbers}</div>"

    @property
    def _names(self) -> list[str]:
        return [plain(name, _MOST_NAME) for name in self.columns["name"]]

    def _alike(self) -> list[str]:
        return [] if self._differing() else ["no setting differs"]

    def _differing(self) -> list[tuple[str, ...]]:
        return [(what, *texts) for what, texts, differs in setting_lines(self.columns) if differs]


def compare_runs(*runs: Source) -> Comparison:
    """Reads runs and compares them."""
    return Comparison(compare(*map(_read, runs)))


def _read(source: Source) -> Folds:
    folds = Folds()
    while folds.read(source):
        pass
    return folds
