"""Choices of a reader as the page wrote them, which may be anything."""

from __future__ import annotations

import pytest

from distlab.page.board import Board
from distlab.page.view import View


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1" + "0" * 5000, "NaN", "Infinity", "-1"])
def test_a_moment_that_no_run_has_is_the_newest(number: str) -> None:
    assert View.read(f'{{"at": {number}, "page": "steps"}}').at is None


def test_a_moment_is_kept() -> None:
    assert View.read('{"at": 12, "since": 0.5, "speed": 2}') == View(at=12, since=0.5, speed=2)


@pytest.mark.parametrize("data", [{}, {"json": []}, {"json": [5]}])
def test_choices_without_a_text_are_the_defaults(data: dict[str, list[object]]) -> None:
    board = Board()
    board.view.data = data
    assert board.chosen() == View()
