"""The notebook about users' own code: distributed losses are those of one device."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

import distlab as dl
from distlab.events import Compile, Metric, Sharding, Step
from tests.notebooks.executed import pictures, text_of

NAME = "05_your_own_jax_flax_optax"
STEPS = 2 * 23
WEIGHTS = 64 * 32 + 32 + 32 * 10 + 10


def last_batch() -> tuple[np.ndarray, np.ndarray]:
    """The 29 training examples that no full batch has."""
    digits = load_digits()
    rows = slice(22 * 64, 1437)
    return (digits.data[rows] / 16).astype(np.float32), digits.target[rows]


def losses(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The losses of the untrained perceptron, in NumPy."""
    first, second = jax.random.split(jax.random.key(0))
    hidden = np.tanh(images @ np.asarray(0.1 * jax.random.normal(first, (64, 32))))
    scores = hidden @ np.asarray(0.1 * jax.random.normal(second, (32, 10)))
    of_label = np.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
    told: np.ndarray = np.log(np.exp(scores).sum(axis=1)) - of_label
    return told


def test_losses_are_those_of_one_device(executed: Any) -> None:
    pattern = r"(\d+) steps, largest difference of the losses: (\S+)"
    for cell, steps in {"spread": STEPS, "flax-train": STEPS, "change": 22}.items():
        ((taken, difference),) = re.findall(pattern, text_of(executed, cell))
        assert int(taken) == steps
        assert 0 <= float(difference) < 1e-5


def test_the_plain_loop_learns_the_real_digits(executed: Any) -> None:
    assert text_of(executed, "setup") == "23 batches, the last one of 29\n"
    digits = load_digits()
    first = losses((digits.data[:64] / 16).astype(np.float32), digits.target[:64])
    found = re.search(r"loss (\S+) at first, (\S+) in the last", text_of(executed, "plain"))
    assert found is not None
    assert float(found[1]) == pytest.approx(first.mean(), abs=2e-4)
    assert float(found[2]) < 0.5 * first.mean()


def test_replicas_stay_alike_and_the_model_is_an_ordinary_one(executed: Any) -> None:
    said = text_of(executed, "alike")
    assert said.count("shape=(64, 32), dtype=float32)") == 8
    assert said.endswith("}\nequal on all replicas: True\n")
    found = re.search(r"([\d.]+)% of 360 digits", text_of(executed, "use"))
    assert found is not None
    assert float(found[1]) > 60


def test_a_mean_of_means_weighs_the_last_example_too_much(executed: Any) -> None:
    told = losses(*last_batch())
    parts = np.split(told, range(4, 29, 4))
    sizes = [len(part) for part in parts]
    assert sizes == [4] * 7 + [1]
    said = text_of(executed, "mean")
    assert f"examples:      {sizes}\n" in said
    of_means, of_all = (
        float(n) for n in re.findall(r"(?:means|device): ([\d.]+)$", said, re.MULTILINE)
    )
    assert of_means == pytest.approx(np.mean([part.mean() for part in parts]), abs=1e-4)
    assert of_all == pytest.approx(told.mean(), abs=1e-4)
    assert abs(of_means - of_all) > 0.01


def test_the_flax_run_was_recorded_with_its_gradients(executed: Any, folder: Path) -> None:
    with dl.Run.open(folder / "runs" / "flax") as run:
        events = list(run.events())
    sizes = [event.sizes for event in events if isinstance(event, Sharding)]
    assert sizes == ([[8] * 8] * 22 + [[4] * 7 + [1]]) * 2
    assert len([event for event in events if isinstance(event, Step)]) == STEPS
    logged = [event.values["loss"] for event in events if isinstance(event, Metric)]
    assert len(logged) == STEPS
    assert logged[0] == pytest.approx(np.log(10), abs=0.5)
    assert logged[-2] < 0.7 * logged[0]
    programs = [event for event in events if isinstance(event, Compile)]
    sent = {
        sum(each.operand_bytes for each in program.collectives)
        for program in programs
        if program.function == "on_all"
    }
    assert sent == {4 * (WEIGHTS + 1)}  # all gradients and the loss, as float32
    (view,) = pictures(executed)
    text = view["text/plain"]
    assert f"Batch {STEPS - 1} (of {STEPS} so far, from 0): 29 examples over 8 replicas" in text
    assert f"all-reduce inside on_all: {STEPS} times {4 * (WEIGHTS + 1) / 1e3:.2f} kB" in text
