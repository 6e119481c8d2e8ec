"""The tables that compare runs: their configurations, and their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from distlab.folds import ComparisonColumns
from distlab.folds.comparison import Unit
from distlab.text.bytes import bytes_text
from distlab.text.units import (
    count_text,
    duration_text,
    plain,
    rate_text,
    share_text,
    value_text,
)

SETTINGS: Final = ("what", "a", "b", "differs")
NUMBERS: Final = ("what", "a", "b", "ratio")

_NOT_KNOWN: Final = "not known"
_WRITERS: Final[Mapping[Unit, Callable[[float], str]]] = {
    "count": count_text,
    "s": duration_text,
    "share": share_text,
    "per second": rate_text,
    "bytes": bytes_text,
    "value": value_text,
}


def setting_rows(columns: ComparisonColumns) -> dict[str, list[str]]:
    """Returns the table of two runs' configurations as text, those that differ first."""
    rows = setting_lines(columns)
    return {
        "what": [what for what, _, _ in rows],
        "a": [texts[0] for _, texts, _ in rows],
        "b": [texts[1] for _, texts, _ in rows],
        "differs": ["differs" if differs else "same" for *_, differs in rows],
    }


def setting_lines(columns: ComparisonColumns) -> list[tuple[str, list[str], bool]]:
    """Returns each setting with its texts, one for each run, and whether they differ."""
    rows = [
        (
            plain(what, 40),
            [plain(text, 120) or _NOT_KNOWN for text in texts],
            len(set(texts)) > 1,
        )
        for what, *texts in zip(columns["setting"], *columns["settings"], strict=True)
    ]
    return sorted(rows, key=lambda row: not row[2])


def number_rows(columns: ComparisonColumns) -> dict[str, list[str]]:
    """Returns the table of two runs' numbers as text."""
    lines = number_lines(columns)
    first, second = columns["numbers"][:2]
    return {
        "what": [what for what, _ in lines],
        "a": [texts[0] for _, texts in lines],
        "b": [texts[1] for _, texts in lines],
        "ratio": [ratio_text(*pair) for pair in zip(first, second, strict=True)],
    }


def number_lines(columns: ComparisonColumns) -> list[tuple[str, list[str]]]:
    """Returns each number's name with its texts, one for each run."""
    rows = zip(columns["what"], columns["unit"], *columns["numbers"], strict=True)
    return [(what, [_text(unit, number) for number in numbers]) for what, unit, *numbers in rows]


def ratio_text(first: float | None, second: float | None) -> str:
    """Returns the second number over the first as text, such as `"× 1.25"`."""
    if first is None or second is None or not first:
        return "same" if first == second == 0 else ""
    ratio = second / first
    if not math.isfinite(ratio):
        return ""
    return "same" if ratio == 1 else f"\u00d7 {ratio:.3g}"


def _text(unit: Unit, number: float | None) -> str:
    return _NOT_KNOWN if number is None else _WRITERS[unit](number)
