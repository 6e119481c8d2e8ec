"""The tables that compare runs: their configurations, and their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import zip_longest
from typing import Final

from distlab.charts.comparison import look
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

DRAWN: Final = ("setting_table", "number_table")
_MOST_NAME: Final = 32
_NOT_KNOWN: Final = "not known"
_WRITERS: Final[Mapping[Unit, Callable[[float], str]]] = {
    "count": count_text,
    "s": duration_text,
    "share": share_text,
    "per second": rate_text,
    "bytes": bytes_text,
    "value": value_text,
}


def setting_table(columns: ComparisonColumns) -> dict[str, list[str]]:
    """Returns the runs' configurations as a page's HTML."""
    label = "The configurations of the runs"
    return _table("settings", label, len(columns["name"]), setting_rows(columns))


def number_table(columns: ComparisonColumns) -> dict[str, list[str]]:
    """Returns the runs' numbers as a page's HTML."""
    return _table("numbers", "Numbers of the runs", len(columns["name"]), number_rows(columns))


def _table(
    name: str, label: str, runs: int, rows: Sequence[tuple[str, ...]]
) -> dict[str, list[str]]:
    kind = ' class="number"' if name == "numbers" else ""
    (corner, *headings), *below = rows
    marks = [
        f'<i style="border-top:2.5px {dash} {colour}"></i>'
        for colour, dash in map(look, range(runs))
    ]
    head = f'<th scope="col">{corner}</th>' + "".join(
        f'<th scope="col"{kind}>{mark}{escape(text)}</th>'
        for mark, text in zip_longest(marks, headings, fillvalue="")
    )
    more = len(headings) > runs
    body = "".join(
        f'<tr data-last="{texts[-1] if more else ""}"><th scope="row">{escape(what)}</th>'
        + "".join(f"<td{kind}>{escape(text)}</td>" for text in texts)
        + "</tr>"
        for what, *texts in below
    )
    html = f'<table class="rows {name}" aria-label="{label}"><thead><tr>{head}</tr></thead>'
    return {"html": [f"{html}<tbody>{body}</tbody></table>"]}


def setting_rows(columns: ComparisonColumns) -> list[tuple[str, ...]]:
    """Returns the headings, and each setting's name and texts; those that differ come first."""
    rows = [
        (
            plain(what, 40),
            *(plain(text, 120) or _NOT_KNOWN for text in texts),
            "differs" if len(set(texts)) > 1 else "same",
        )
        for what, *texts in zip(columns["setting"], *columns["settings"], strict=True)
    ]
    return [("configuration", *_names(columns), ""), *sorted(rows, key=lambda row: row[-1])]


def number_rows(columns: ComparisonColumns) -> list[tuple[str, ...]]:
    """Returns the headings, and each number's name and texts; of two runs with their ratio."""
    lines = zip(columns["what"], columns["unit"], *columns["numbers"], strict=True)
    rows = [
        ("of the whole run", *_names(columns)),
        *((plain(what, 80), *(_text(unit, one) for one in each)) for what, unit, *each in lines),
    ]
    if len(columns["name"]) != 2:
        return rows
    ratios = ["second / first", *map(ratio_text, *columns["numbers"])]
    return [(*row, ratio) for row, ratio in zip(rows, ratios, strict=True)]


def _names(columns: ComparisonColumns) -> list[str]:
    return [plain(name, _MOST_NAME) for name in columns["name"]]


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
