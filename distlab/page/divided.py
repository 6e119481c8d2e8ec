"""The table of what steps gather and scatter of divided variables, as text."""

from __future__ import annotations

from typing import Final, TypeAlias

from distlab.folds import ReductionColumns
from distlab.page.facts.amounts import NOTHING
from distlab.text.bytes import bytes_text
from distlab.text.units import plain

Rows: TypeAlias = dict[str, list[str]]

NAMES: Final = ("variable", "gathered", "scattered", "sent")
_MOST_ROWS: Final = 200


def pair_rows(reductions: ReductionColumns) -> Rows:
    """Returns a row for each divided variable, with the bytes that one device sends in a step."""
    pairs = reductions["pairs"][:_MOST_ROWS]
    return {
        "variable": [plain(pair.name, 60) for pair in pairs],
        "gathered": [_sent(pair.gathers, pair.gathered) for pair in pairs],
        "scattered": [_sent(pair.scatters, pair.scattered) for pair in pairs],
        "sent": [bytes_text(pair.gathered + pair.scattered) for pair in pairs],
    }


def _sent(times: int, size: int) -> str:
    if not times:
        return NOTHING
    often = f"{times} \u00d7 " if times > 1 else ""
    return f"{often}{bytes_text(size // times)}"
