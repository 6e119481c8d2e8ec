"""The tables that compare two runs: their configurations, and their numbers."""

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
    """Returns the table of configurations as text, those that differ first."""
    rows = sorted(
        zip(columns["setting"], columns["setting_a"], columns["setting_b"], strict=True),
        key=lambda row: row[1] == row[2],
    )
    return {
        "what": [plain(what, 40) for what, _, _ in rows],
        "a": [plain(first, 120) or _NOT_KNOWN for _, first, _ in rows],
        "b": [plain(second, 120) or _NOT_KNOWN for _, _, second in rows],
        "differs": ["same" if first == second else "differs" for _, first, second in rows],
    }


def number_rows(columns: ComparisonColumns) -> dict[str, list[str]]:
    """Returns the table of numbers as text."""
    pairs = list(zip(columns["unit"], columns["a"], columns["b"], strict=True))
    return {
        "what": list(columns["what"]),
        "a": [_text(unit, first) for unit, first, _ in pairs],
        "b": [_text(unit, second) for unit, _, second in pairs],
        "ratio": [ratio_text(first, second) for _, first, second in pairs],
    }


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
