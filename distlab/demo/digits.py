"""Handwritten digits: 1,797 real images of 8 by 8 pixels, bundled with scikit-learn."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distlab.errors import MissingExtraError

BRIGHTEST = 16.0
TRAIN_SHARE = 0.8


class Digits(NamedTuple):
    """1,437 images of 8 by 8 pixels from 0 (paper) to 1 (ink), their digits, and 360 to test."""

    train_images: NDArray[np.float32]
    train_labels: NDArray[np.int32]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.int32]


def load(seed: int = 0) -> Digits:
    """Reads the digits and divides them 80 to 20."""
    table = np.loadtxt(_bundled_file(), delimiter=",")
    images = (table[:, :-1].reshape(-1, 8, 8) / BRIGHTEST).astype(np.float32)
    labels = table[:, -1].astype(np.int32)
    order = np.random.default_rng(seed).permutation(len(images))
    train, test = np.split(order, [int(TRAIN_SHARE * len(images))])
    return Digits(images[train], labels[train], images[test], labels[test])


def _bundled_file() -> Path:
    """Returns the file that `sklearn.datasets.load_digits` reads.

    Importing scikit-learn for it would take 75 MB and a second or two.
    """
    found = find_spec("sklearn")
    if found is None or found.origin is None:
        raise MissingExtraError(
            "The demo reads scikit-learn's digits, and scikit-learn is not installed. "
            "Install it with: pip install 'distlab[demo]'"
        )
    return Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
