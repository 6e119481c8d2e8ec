"""Shares over time as small images."""

from __future__ import annotations

import re
from typing import TypeAlias

import numpy as np

from distlab.widgets._heat_strips import strips
from tests.widgets.test_picture import pixels_of

Pixels: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


def drawn(shares: list[list[float]]) -> list[Pixels]:
    sources = [re.findall(r'src="([^"]*)"', html)[0] for html in strips(np.array(shares), 160)]
    return [pixels_of(source) for source in sources]


def test_much_is_brighter_than_little_and_unknown_is_clear() -> None:
    (strip,) = drawn([[0.0], [1.0], [np.nan]])
    little, much, unknown = strip[0, 0], strip[0, 60], strip[0, -1]
    assert little[:3].sum() < much[:3].sum()
    assert [little[3], much[3], unknown[3]] == [255, 255, 0]


def test_many_cells_become_means_of_neighbours_without_gaps() -> None:
    shares = np.zeros((800, 1))
    shares[::2] = np.nan
    (strip,) = drawn(shares.tolist())
    (dark,) = drawn([[0.0]] * 80)
    assert np.array_equal(strip, dark)
    assert {strip.shape for strip in drawn([[0.5, 0.1, 0.9]] * 40)} == {(16, 160, 4)}
