"""The progress line, on a terminal and in a log."""

from __future__ import annotations

import io
import re

import pytest

from distlab.demo.progress import Progress, clock, line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_line_says_share_rate_time_left_and_loss() -> None:
    assert line(50, 200, 12.5, 0.31416) == (
        "[#######-----------------------]  25%  step 50/200  12.5 steps/s  ETA 00:12  loss 0.3142"
    )


@pytest.mark.parametrize("width", [120, 79, 75])
def test_line_fits_where_there_is_room_for_a_bar(width: int) -> None:
    text = line(1_379, 1_380, 123.4, 0.0012, width)
    assert text.startswith("[###")
    assert len(text) <= width


def test_line_leaves_the_bar_out_where_there_is_none() -> None:
    assert line(1, 2, 1.0, 0.5, 40) == " 50%  step 1/2  1.0 steps/s  ETA 00:01  loss 0.5000"


def test_line_has_no_eta_before_there_is_a_rate() -> None:
    assert "  ETA --:--  " in line(1, 1_000, 0.0, 2.3)


def test_line_is_full_at_the_end() -> None:
    assert line(7, 7, 1.0, 0.0).startswith(f"[{'#' * 30}] 100%")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "00:00"), (59.6, "01:00"), (61, "01:01"), (3_725, "1:02:05")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_log_gets_whole_lines_without_control_characters() -> None:
    stream = io.StringIO()
    progress = Progress(3, stream)
    for done in (1, 2, 3):
        progress(done, 1.0 / done)
    lines = stream.getvalue().splitlines()
    assert [re.findall(r"step \d/3", text) for text in lines] == [["step 1/3"], ["step 3/3"]]
    assert all(text.isprintable() for text in lines)


def test_terminal_redraws_one_line() -> None:
    stream = Terminal()
    progress = Progress(2, stream)
    progress(1, 1.0)
    progress(2, 0.5)
    first, last = stream.getvalue().split("\r")[1:]
    assert "\n" not in first
    assert last.endswith("\n")
    assert "loss 0.5000" in last


def test_a_loss_is_not_read_between_two_lines() -> None:
    class Unreadable:
        def __float__(self) -> float:
            raise AssertionError("reading it would wait for the devices")

    progress = Progress(100, io.StringIO())
    progress(1, 1.0)
    progress(2, Unreadable())
