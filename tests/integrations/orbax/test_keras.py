"""Checkpoints of Keras models: weights, optimizer and all, under any number of replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import distlab as dl
from distlab.errors import CheckpointMismatchError
from tests.integrations.orbax.saving import strategy_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(48, 3)).astype("float32")
Y = X.sum(1, keepdims=True)


def made(replicas: int, units: int = 2) -> Any:
    with strategy_of(replicas).scope():
        keras.utils.set_random_seed(replicas)
        layers = [keras.layers.Dense(units), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((3,)), *layers])
        model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def fit(model: Any) -> None:
    model.fit(X, Y, batch_size=24, shuffle=False, verbose=0)


def test_a_model_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    model = made(8)
    fit(model)
    path = dl.train.Checkpoint(model=model).save(tmp_path / "ckpt")
    fit(model)
    for replicas in (3, 0):
        other = made(replicas)
        dl.train.Checkpoint(model=other).restore(path).assert_consumed()
        assert int(other.optimizer.iterations) == 2
        fit(other)
        for wanted, weight in zip(model.get_weights(), other.get_weights(), strict=True):
            np.testing.assert_allclose(weight, wanted, rtol=1e-5, atol=1e-6)


def test_model_and_optimizer_may_be_named_apart(tmp_path: Path) -> None:
    model = made(2)
    fit(model)
    optimizer = model.optimizer
    path = dl.train.Checkpoint(optimizer=optimizer, model=model).save(tmp_path / "ckpt")
    other = made(3)
    own = keras.optimizers.Adam(0.5)
    dl.train.Checkpoint(optimizer=own, model=other).restore(path).assert_consumed()
    assert int(own.iterations) == 2
    assert float(own.learning_rate) == pytest.approx(0.01)
    third = made(2)
    dl.train.Checkpoint(optimizer=third.optimizer, model=third).restore(path).assert_consumed()
    assert int(third.optimizer.iterations) == 2
    path = dl.train.Checkpoint(optimizer).save(tmp_path / "alone")
    alone = keras.optimizers.Adam(0.5)
    dl.train.Checkpoint(alone).restore(path).assert_consumed()
    for new in (own, alone):
        new.build(other.trainable_variables)  # as its first step does
        for wanted, slot in zip(optimizer.variables, new.variables, strict=True):
            np.testing.assert_allclose(slot, wanted)


def test_another_model_is_refused_and_unharmed(tmp_path: Path) -> None:
    path = dl.train.Checkpoint(model=made(2)).save(tmp_path / "ckpt")
    other = made(2, units=5)
    before = other.get_weights()
    with pytest.raises(CheckpointMismatchError, match=r"model/0 is float32\[3, 5\] here"):
        dl.train.Checkpoint(model=other).restore(path)
    for wanted, weight in zip(before, other.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, wanted)
