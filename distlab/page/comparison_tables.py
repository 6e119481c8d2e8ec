"""The tables that compare runs: their configurations, and their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from html import escape
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
    """Returns the runs' configurations as a page's HTML, those that differ first."""
    rows = [
        (what, *texts, "differs" if differs else "same")
        for what, texts, differs in setting_lines(columns)
    ]
    return _table(
        "settings", "The configurations of the runs", columns, ("configuration", ""), rows
    )


def number_table(columns: ComparisonColumns) -> dict[str, list[str]]:
    """Returns the runs' numbers as a page's HTML; of two runs with their ratio."""
    rows = number_rows(columns)
    ratio = "second / first" if len(columns["name"]) == 2 else ""
    return _table("numbers", "Numbers of the runs", columns, ("of the whole run", ratio), rows)


def _table(
    name: str,
    label: str,
    columns: ComparisonColumns,
    ends: tuple[str, str],
    rows: list[tuple[str, ...]],
) -> dict[str, list[str]]:
    kind = ' class="number"' if name == "numbers" else ""
    more = len(rows[0]) - 1 - len(columns["name"])
    heads = [f'<th scope="col">{ends[0]}</th>']
    for number, run in enumerate(columns["name"]):
        colour, dash = look(number)
        mark = f'<i style="border-top:2.5px {dash} {colour}"></i>'
        heads.append(f'<th scope="col"{kind}>{mark}{escape(plain(run, _MOST_NAME))}</th>')
    heads += [f"<th{kind}>{ends[1]}</th>"] * more
    body = [
        f'<tr data-last="{texts[-1] if more else ""}"><th scope="row">{escape(what)}</th>'
        + "".join(f"<td{kind}>{escape(text)}</td>" for text in texts)
        + "</tr>"
        for what, *texts in rows
    ]
    head, below = "".join(heads), "".join(body)
    html = f'<table class="rows {name}" aria-label="{label}"><thead><tr>{head}</tr></thead>'
    return {"html": [f"{html}<tbody>{below}</tbody></table>"]}


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


def number_rows(columns: ComparisonColumns) -> list[tuple[str, ...]]:
    """Returns each number's name, its texts, and of two runs their ratio."""
    lines = [(what, *texts) for what, texts in number_lines(columns)]
    if len(columns["name"]) != 2:
        return lines
    pairs = zip(*columns["numbers"], strict=True)
    return [(*line, ratio_text(*pair)) for line, pair in zip(lines, pairs, strict=True)]


def number_lines(columns: ComparisonColumns) -> list[tuple[str, list[str]]]:
    """Returns each number's name with its texts, one for each run."""
    rows = zip(columns["what"], columns["unit"], *columns["numbers"], strict=True)
    return [
        (plain(what, 80), [_text(unit, number) for number in numbers])
        for what, unit, *numbers in rows
    ]


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
