"""Keras' numbers on distlab are those of Keras on TensorFlow, on 1, 2 and 8 replicas."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import distlab as dl
from tests.integrations.keras import programs

GOLDENS = sorted((Path(__file__).parent / "goldens").glob("*.npz"))
LARGE = ("clip", "conv")
"""Programs that amplify differences: large weights, and convolutions computed in another order."""


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.stem)
def test_a_program_has_tensorflows_numbers(golden: Path) -> None:
    replicas, _, case = golden.stem.partition("_")
    with dl.MirroredStrategy(jax.devices()[: int(replicas)]).scope():
        model = programs.build(case)
    found = programs.results(case, model)
    limit = 2e-4 if case in LARGE else 2e-5
    with np.load(golden) as expected:
        assert set(found) == set(expected.files)
        for name, numbers in expected.items():
            # Each processor adds in an order of its own: sums round by a share of their size.
            atol = limit * max(1.0, float(np.abs(numbers).max(initial=0.0)))
            np.testing.assert_allclose(found[name], numbers, rtol=0, atol=atol, err_msg=name)
