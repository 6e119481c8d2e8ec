"""Times, counts, rates and names as text for people."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from distlab.text.bytes import three_digits

_DELIMITERS = ("$$", "\\(", "\\[")
_KINDS = {"f": "float", "s": "int", "u": "uint", "c": "complex"}
_NAMED = {"bf16": "bfloat16", "pred": "bool"}
_LINE = re.compile(r":\d+$|, line \d+$")


def duration_text(seconds: float) -> str:
    """Returns seconds as text, such as `"85 µs"`, `"12.3 ms"` or `"1 h 05 min"`."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 0.999_5e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.999_5:
        return f"{three_digits(seconds * 1e3)} ms"
    if seconds < 59.95:
        return f"{three_digits(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def count_text(number: float) -> str:
    """Returns a whole number with thin spaces between thousands: `"12 480"`."""
    return f"{number:,.0f}".replace(",", "\u202f")


def of_total(count: int, total: int | None) -> str:
    """Returns a count and the total that was meant: `"3 of 10"`; without one that it exceeds."""
    return count_text(count) + (f" of {count_text(total)}" if total and total >= count else "")


def counted(count: int, thing: str, things: str = "") -> str:
    """Returns a number of things as text: `"1 step"`, `"12 steps"`, `"2 batches"`."""
    return f"{count_text(count)} {thing if count == 1 else things or f'{thing}s'}"


def rate_text(per_second: float) -> str:
    """Returns a rate with three digits, such as `"0"`, `"0.25"`, `"84.1"` or `"6 250"`."""
    if not per_second:
        return "0"
    return count_text(per_second) if abs(per_second) >= 999.5 else three_digits(per_second)


def flops_text(flops: float) -> str:
    """Returns floating-point operations as text, such as `"3.4 GFLOP"`."""
    for unit, least in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if flops >= least:
            return f"{flops / least:.3g} {unit}FLOP"
    return f"{flops:.0f} FLOP"


def share_text(share: float) -> str:
    """Returns a share of one as a percentage, such as `"63 %"`."""
    return "unknown" if math.isnan(share) else f"{100 * share:.0f} %"


def value_text(value: float) -> str:
    """Returns a logged value with four digits, such as `"0.04213"`."""
    return f"{value:.4g}"


def dtype_text(dtype: str) -> str:
    """Returns NumPy's names for the element types in a compiled program."""
    return "+".join(_dtype(name) for name in dtype.split("+"))


def _dtype(name: str) -> str:
    match = re.fullmatch(r"([fsuc])(\d+)(e\w+)?", name)
    if match is None:
        return _NAMED.get(name, name)
    variant = f"_{match[3]}" if match[3] else ""
    return f"{_KINDS[match[1]]}{match[2]}{variant}"


def line_in(source: str) -> str:
    """Returns the line in a collective's source, `"psum at train.py:7"`; "" where it has none."""
    line = source.rpartition(" at ")[2]
    return line if _LINE.search(line) else ""


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns rows of texts in aligned columns."""
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, wide)).rstrip() for row in rows]


def plain(text: str, most: int = 60) -> str:
    r"""Returns text from an untrusted source as text that is safe in a label.

    Bokeh would render text between TeX delimiters as mathematics, and load MathJax for it;
    control characters would break a line.
    """
    clean = "".join(letter if letter.isprintable() else " " for letter in text)
    for delimiter in _DELIMITERS:
        clean = clean.replace(delimiter, "\u200b".join(delimiter))
    if len(clean) <= most:
        return clean
    half = (most - 1) // 2
    return f"{clean[: most - 1 - half]}…{clean[-half:]}"
