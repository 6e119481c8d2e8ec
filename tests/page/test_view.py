"""Choices of a reader as the page wrote them, which may be anything."""

from __future__ import annotations

import pytest

from distlab.page.board import Board
from distlab.page.view import View


@pytest.mark.parametrize("number", ["1" + "0" * 5000, "NaN", "Infinity", "-1", "1e400", '"1"'])
def test_a_moment_that_no_run_has_is_the_newest(number: str) -> None:
    assert View.read(f'{{"at": {number}, "page": "steps"}}').at is None


def test_valid_choices_of_a_page_are_kept() -> None:
    assert View.read('{"at": 12, "since": 0.5, "speed": 2, "batch": 7, "event": null, "x": 1}') == (
        View(at=12, since=0.5, speed=2, batch=7)
    )


@pytest.mark.parametrize(
    "text",
    [
        None, 3, "", "no json", "[]", "null", '{"page": 3}', '{"batch": 1.5}', '{"batch": true}',
        '{"orders": null}', '{"text": "' + "x" * 1_000 + '"}', '{"since": NaN}', "[" * 100_000,
    ],
)  # fmt: skip
def test_invalid_choices_of_a_page_are_the_defaults(text: object) -> None:
    assert View.read(text) == View()
    board = Board()
    board.view.data = {} if text is None else {"json": [text]}
    assert board.chosen() == View()
