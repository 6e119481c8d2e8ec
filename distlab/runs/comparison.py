"""Two runs side by side, as text and as tables for notebooks."""

from __future__ import annotations

from typing import Final, final

from distlab.events import Source
from distlab.folds import ComparisonColumns, Folds, compare
from distlab.page.comparison_tables import number_rows, setting_rows
from distlab.text.html import card
from distlab.text.units import plain

_MOST_NAME: Final = 32


@final
class Comparison:
    """Two runs side by side; `Run.compare` returns it.

    Printed, or as the last line of a notebook's cell, it says first what differs in
    configuration, and then the numbers of both runs.

    Attributes:
      columns: The curves of the losses and rates, the settings and the numbers.
    """

    def __init__(self, columns: ComparisonColumns) -> None:
        self.columns = columns

    def __repr__(self) -> str:
        """Lists the settings that differ, and the numbers."""
        lines = [" and ".join(self._names), *self._settings_line(), *self._lines()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Shows a table of the settings that differ, and one of the numbers, in notebooks."""
        first, second = self._names
        differing = self._differing()
        alike = "" if differing else "no setting differs"
        settings = card("Configuration", alike, ("what differs", first, second), differing)
        headings = ("of the whole run", first, second, "second / first")
        numbers = card("Numbers", "", headings, self._numbers())
        return f"<div>{settings}</div><div style='margin-top:8px'>{numbers}</div>"

    @property
    def _names(self) -> tuple[str, str]:
        first, second = self.columns["name"]
        return plain(first, _MOST_NAME), plain(second, _MOST_NAME)

    def _differing(self) -> list[tuple[str, ...]]:
        rows = setting_rows(self.columns)
        both = zip(rows["what"], rows["a"], rows["b"], rows["differs"], strict=True)
        return [(what, first, second) for what, first, second, how in both if how == "differs"]

    def _numbers(self) -> list[tuple[str, ...]]:
        rows = number_rows(self.columns)
        return list(zip(rows["what"], rows["a"], rows["b"], rows["ratio"], strict=True))

    def _settings_line(self) -> list[str]:
        return [] if self._differing() else ["  no setting differs"]

    def _lines(self) -> list[str]:
        rows = [*self._differing(), *self._numbers()]
        wide = max(len(what) for what, *_ in rows)
        return [
            f"  {what:<{wide}}  {first} | {second}{f'  ({ratio[0]})' if ratio and ratio[0] else ''}"
            for what, first, second, *ratio in rows
        ]


def compare_runs(first: Source, second: Source) -> Comparison:
    """Reads two runs and compares them."""
    return Comparison(compare(_read(first), _read(second)))


def _read(source: Source) -> Folds:
    folds = Folds()
    while folds.read(source):
        pass
    return folds
