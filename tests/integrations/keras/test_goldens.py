"""Keras' numbers on distlab are those of Keras on TensorFlow, on 1, 2 and 8 replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import distlab as dl
from tests.integrations.keras import programs

GOLDENS = sorted((Path(__file__).parent / "goldens").glob("*.npz"))
AMPLIFYING = ("clip", "conv")
"""Programs that amplify differences: large weights, and the largest of neighbours that a
convolution makes almost equal. Which one that is depends on the order in which a processor adds."""
MOST_RUNS = 16


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.stem)
def test_a_program_has_tensorflows_numbers(golden: Path) -> None:
    replicas, _, case = golden.stem.partition("_")
    limit, runs = (2e-4, MOST_RUNS) if case in AMPLIFYING else (2e-5, 1)
    with dl.MirroredStrategy(jax.devices()[: int(replicas)]).scope():
        model = programs.build(case)
    model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    first = [np.asarray(variable) for variable in variables]
    with np.load(golden) as expected:
        for run in range(runs):
            for variable, value in zip(variables, first, strict=True):
                variable.assign(value)
            found = programs.results(case, model, disturbed=run)
            try:
                require_alike(found, expected, limit)
                return
            except AssertionError:
                if run == runs - 1:
                    raise


def require_alike(found: dict[str, np.ndarray], expected: Any, limit: float) -> None:
    assert set(found) == set(expected.files)
    for name, numbers in expected.items():
        # Each processor adds in an order of its own: sums round by a share of their size.
        atol = limit * max(1.0, float(np.abs(numbers).max(initial=0.0)))
        np.testing.assert_allclose(found[name], numbers, rtol=0, atol=atol, err_msg=name)
