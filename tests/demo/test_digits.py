"""The demo's data."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from distlab.demo import digits
from distlab.errors import MissingExtraError


def test_images_are_divided_80_to_20() -> None:
    data = digits.load()
    assert data.train_images.shape == (1437, 8, 8)
    assert data.test_images.shape == (360, 8, 8)
    assert data.train_labels.shape == (1437,)
    assert data.test_labels.shape == (360,)
    assert data.train_images.dtype == np.float32
    assert (data.train_images.min(), data.train_images.max()) == (0.0, 1.0)
    assert sorted(set(data.train_labels.tolist())) == list(range(10))


def test_the_seed_decides_the_division() -> None:
    np.testing.assert_array_equal(digits.load(3).test_images, digits.load(3).test_images)
    assert not np.array_equal(digits.load(3).test_labels, digits.load(4).test_labels)


def test_they_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    mine, theirs = digits.load(), load_digits()
    images = np.concatenate([mine.train_images, mine.test_images]).reshape(-1, 64) * 16
    labels = np.concatenate([mine.train_labels, mine.test_labels])
    found = np.column_stack([images, labels])
    expected = np.column_stack([theirs.data, theirs.target])
    np.testing.assert_array_equal(np.unique(found, axis=0), np.unique(expected, axis=0))
    assert len(found) == len(expected) == 1797


def test_missing_scikit_learn_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'distlab\[demo\]'"):
        digits.load()
