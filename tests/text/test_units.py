"""Numbers as people read them, and texts of others."""

from __future__ import annotations

from distlab.text.bytes import bytes_text
from distlab.text.printable import printable
from distlab.text.units import (
    count_text,
    dtype_text,
    duration_text,
    line_in,
    of_total,
    plain,
    rate_text,
    share_text,
    value_text,
)

BYTES = {
    0: "0 B", 999: "999 B", 1_000: "1.00 kB", 9_640: "9.64 kB", 77_160: "77.2 kB",
    400_000_000: "400 MB", 999_600: "1.00 MB", 3e15: "3.00 PB",
}  # fmt: skip
DURATIONS = {
    0: "0 µs", 85e-6: "85 µs", 0.0123: "12.3 ms", 4.2: "4.20 s", 59.99: "1 min 00 s",
    65: "1 min 05 s", 3_900: "1 h 05 min", float("inf"): "unknown",
}  # fmt: skip
DTYPES = {
    "f32": "float32", "bf16": "bfloat16", "s32": "int32", "u8": "uint8", "c64": "complex64",
    "pred": "bool", "f8e4m3fn": "float8_e4m3fn", "f32+s32": "float32+int32",
    "float32": "float32", "token": "token",
}  # fmt: skip
ESCAPED = {
    "plain, größer, 大": "plain, größer, 大",
    "\x1b]0;title\x07": "\\x1b]0;title\\x07",
    "1. forged\nline\r": "1. forged\\nline\\r",
    "\u202eright to left\x9b31m": "\\u202eright to left\\x9b31m",
}


def test_numbers_have_units_that_people_read() -> None:
    assert {size: bytes_text(size) for size in BYTES} == BYTES
    assert {seconds: duration_text(seconds) for seconds in DURATIONS} == DURATIONS
    assert {name: dtype_text(name) for name in DTYPES} == DTYPES
    assert [rate_text(rate) for rate in (0.25, 84.1, 6_250)] == ["0.25", "84.1", "6\u202f250"]
    assert count_text(1_234_567) == "1\u202f234\u202f567"
    assert [of_total(3, total) for total in (None, 10, 3, 2)] == ["3", "3 of 10", "3 of 3", "3"]
    assert share_text(0.634) == "63 %"
    assert share_text(float("nan")) == "unknown"
    assert value_text(0.042134) == "0.04213"


def test_the_line_of_a_source_is_found_where_it_has_one() -> None:
    lines = {"jit(f)/psum at a b.py:7": "a b.py:7", "psum at cell 3, line 4": "cell 3, line 4"}
    assert {source: line_in(source) for source in lines} == lines
    assert [line_in(one) for one in ("train.py:7", "jit(f)/psum", "")] == ["train.py:7", "", ""]


def test_texts_of_strangers_are_one_line_without_commands() -> None:
    assert plain("a\nb\x00") == "a b "
    assert "$$" not in plain("$$x$$")
    assert plain("x" * 100, 11) == "xxxxx…xxxxx"
    assert plain("<b>bold</b>") == "<b>bold</b>"
    assert {text: printable(text) for text in ESCAPED} == ESCAPED
