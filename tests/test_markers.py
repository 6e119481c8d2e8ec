"""Markers follow from what a test uses; a measured test runs alone."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import markers, own_process
from tests.patience import LIMIT_SECONDS, measured


def _starts() -> None:
    subprocess.run(["true"], check=True)


def _starts_by_another() -> None:
    _starts()


class _Starter:
    def __init__(self) -> None:
        own_process.run("")


def _makes_a_starter() -> object:
    return [_Starter() for _ in range(1)]


def _only_counts() -> int:
    return sum(range(3))


@measured
def _compares_times() -> None:
    pass


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (_starts, {"process"}),
        (_starts_by_another, {"process"}),
        (_makes_a_starter, {"process"}),
        (_only_counts, set()),
        (_compares_times, {"measured"}),
    ],
)
def test_a_function_has_the_markers_of_what_it_uses(
    function: Callable[[], Any], found: set[str]
) -> None:
    assert markers._uses(function) == found


def test_who_is_alone_waits_for_others_and_keeps_them_out(tmp_path: Path) -> None:
    order: list[str] = []

    def take(name: str, *, alone: bool) -> threading.Thread:
        def work() -> None:
            with markers.turn(tmp_path, alone=alone):
                order.append(name)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    with markers.turn(tmp_path, alone=False):
        take("together", alone=False).join(LIMIT_SECONDS)
        waiting = take("alone", alone=True)
        waiting.join(0.05)
        assert order == ["together"]
    waiting.join(LIMIT_SECONDS)
    with markers.turn(tmp_path, alone=True):
        waiting = take("later", alone=False)
        waiting.join(0.05)
        assert order == ["together", "alone"]
    waiting.join(LIMIT_SECONDS)
    assert order == ["together", "alone", "later"]
