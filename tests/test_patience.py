"""A test of times is tried again, and what others disturbed does not count."""

from __future__ import annotations

import itertools

import pytest

from tests import patience


def test_four_attempts_count_where_nothing_disturbs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_used_seconds", lambda: 0.0)
    assert list(patience.attempts()) == [0, 1, 2, 3]


def test_attempts_that_others_disturb_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    used = itertools.accumulate(itertools.repeat(1_000.0))
    monkeypatch.setattr(patience, "_used_seconds", lambda: next(used))
    assert list(patience.attempts()) == list(range(16))


def test_a_measured_test_passes_with_its_first_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_used_seconds", lambda: 0.0)
    tries = itertools.count(1)

    @patience.measured
    def passes_at_the_third_attempt() -> None:
        assert next(tries) == 3

    passes_at_the_third_attempt()
    assert next(tries) == 4


def test_a_measured_test_fails_with_the_error_of_its_last_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "_used_seconds", lambda: 0.0)
    tries = itertools.count(1)

    @patience.measured
    def fails() -> None:
        raise AssertionError(f"attempt {next(tries)}")

    with pytest.raises(AssertionError, match="attempt 4"):
        fails()
