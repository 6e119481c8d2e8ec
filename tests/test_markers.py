"""Markers follow from what a test uses; a measured test runs alone."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests import markers, own_process
from tests.patience import measured


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
