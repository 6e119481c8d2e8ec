"""Texts of others reach a terminal without their control characters."""

from __future__ import annotations

import pytest

from distlab.text.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, größer, 大", "plain, größer, 大"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("1. forged\nline\r", "1. forged\\nline\\r"),
        ("\u202eright to left\x9b31m", "\\u202eright to left\\x9b31m"),
    ],
)
def test_what_a_terminal_would_obey_is_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown
