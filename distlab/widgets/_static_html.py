"""Tables and images that a notebook shows without a kernel: no script, no style sheet.

Sanitizers of notebook viewers keep tables, images and some inline styles, and remove
everything else. So all information is in those, and as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

MOST_ROWS = 32
"""The most rows of a table; a line below it has the number of the others."""

NO_BREAK = "\u00a0"
"""A space at which no line breaks."""

_CELL = "padding:2px 10px 2px 0;text-align:left;vertical-align:middle;border:none"
_HEAD = f"{_CELL};font-weight:600"


def table(columns: Mapping[str, Sequence[str]], things: str, marks: Sequence[str] = ()) -> str:
    """Returns a table."""
    rows = ["".join(f"<th style='{_HEAD}'>{escape(title)}</th>" for title in columns)]
    count = max(map(len, columns.values()), default=0)
    for row in range(min(count, MOST_ROWS)):
        cells = [_cell(cells[row]) if row < len(cells) else _cell("") for cells in columns.values()]
        if row < len(marks):
            mark = f"{_CELL};border-left:4px solid {marks[row]};padding-left:6px"
            cells[0] = cells[0].replace(_CELL, mark, 1)
        rows.append("".join(cells))
    body = "".join(f"<tr style='background:none'>{row}</tr>" for row in rows)
    left = count - MOST_ROWS
    more = f"<p style='margin:2px 0'>and {left} more {escape(things)}</p>" if left > 0 else ""
    return f"<table style='border-collapse:collapse;margin:6px 0'>{body}</table>{more}"


def swatch(text: str, paper: str, ink: str) -> str:
    """Returns a text on a colour, which looks the same on light and on dark pages."""
    style = f"background-color:{paper};color:{ink};padding:1px 6px"
    return f"<span style='{style}'>{escape(text).replace(' ', NO_BREAK)}</span>"


def image(source: str, width: int, text: str = "") -> str:
    """Returns an image of a fixed width."""
    # The notebook's own style sheet would let it shrink to nothing in a narrow table.
    style = f"width:{width}px;max-width:none;vertical-align:middle"
    safe = escape(text, quote=True)
    return f'<img src="{source}" alt="{safe}" title="{safe}" style="{style}">'


def line(text: str) -> str:
    """Returns a line of text."""
    return f"<p style='margin:2px 0'>{escape(text)}</p>"


def _cell(inside: str) -> str:
    return f"<td style='{_CELL}'>{inside}</td>"
