"""Texts of others as a terminal may have them."""

from __future__ import annotations


def printable(text: str) -> str:
    """Returns a text whose control characters can't reach the terminal, as in a Python string.

    Thin spaces between thousands become plain ones.
    """
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text.replace("\u202f", " ")
    )
