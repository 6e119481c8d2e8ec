"""The demo's data."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from distlab.demo import digits
from distlab.errors import MissingExtraError


def test_images_of_scikit_learn_are_divided_by_the_seed() -> None:
    from sklearn.datasets import load_digits

    mine, theirs = digits.load(), load_digits()
    assert mine.train_images.shape == (1437, 8, 8)
    assert mine.test_images.shape == (360, 8, 8)
    assert mine.train_images.dtype == np.float32
    images = np.concatenate([mine.train_images, mine.test_images]).reshape(-1, 64) * 16
    labels = np.concatenate([mine.train_labels, mine.test_labels])
    found = np.column_stack([images, labels])
    expected = np.column_stack([theirs.data, theirs.target])
    np.testing.assert_array_equal(np.unique(found, axis=0), np.unique(expected, axis=0))
    assert len(found) == len(expected) == 1797
    np.testing.assert_array_equal(digits.load(3).test_images, digits.load(3).test_images)
    assert not np.array_equal(digits.load(3).test_labels, digits.load(4).test_labels)


def test_missing_scikit_learn_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'distlab\[demo\]'"):
        digits.load()
