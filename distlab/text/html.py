"""Small tables for notebooks: plain HTML that needs no script, kernel or style sheet.

Colours are those of the surrounding text, so that they are legible on light and dark.
All contents are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

_MOST_ROWS: Final = 16
_LINE: Final = "1px solid color-mix(in srgb, currentColor 18%, transparent)"
_CELL: Final = "padding:3px 14px 3px 0;text-align:left;vertical-align:top;background:none"
_FAINT: Final = "opacity:.7"
_NARROW, _WIDE = "600px", "min(100%, 860px)"


def card(
    title: str,
    facts: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    picture: str = "",
    *,
    below: str = "",
) -> str:
    """Returns a title, a line of facts, a picture as HTML, a table, and HTML below it."""
    kept = [list(row) for row in rows]
    left_out = len(kept) - _MOST_ROWS
    head = "".join(
        f'<th style="{_CELL};font-weight:500;{_FAINT}">{escape(name)}</th>' for name in headings
    )
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(text)}</td>' for text in row) + "</tr>"
        for row in kept[:_MOST_ROWS]
    )
    more = f'<div style="{_FAINT}">and {left_out} more</div>' if left_out > 0 else ""
    table = (
        '<table style="font:inherit;border-collapse:collapse;margin:6px 0 0;'
        'font-variant-numeric:tabular-nums">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        if kept
        else ""
    )
    return (
        f'<div style="display:inline-block;max-width:{_WIDE if picture or below else _NARROW};'
        f"border:{_LINE};border-radius:8px;"
        f'padding:10px 14px;font:13px/1.45 system-ui,sans-serif;overflow-x:auto">'
        f'<div><b>{escape(title)}</b> <span style="{_FAINT}">{escape(facts)}</span></div>'
        f"{picture}{table}{more}{below}</div>"
    )
