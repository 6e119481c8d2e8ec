"""Numbers of bytes as text."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def bytes_text(size: float) -> str:
    """Returns bytes as text with a decimal unit, such as `"9.64 kB"`."""
    unit = 0
    while abs(size) >= 999.5 and unit < len(_UNITS) - 1:
        size /= 1_000
        unit += 1
    return f"{size:.0f} B" if unit == 0 else f"{three_digits(size)} {_UNITS[unit]}"


def three_digits(number: float) -> str:
    """Returns a number below a thousand with three digits: `"9.64"`, `"12.0"`, `"120"`."""
    digits = 2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0
    return f"{number:.{digits}f}"
