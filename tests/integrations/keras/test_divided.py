"""Keras on variables in parts: the numbers of whole ones, and slots of optimizers in parts, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
from keras import layers, optimizers

import distlab as dl
from tests.integrations.keras.small import FIT, X, Y, mirrored, model


def divided(replicas: int) -> dl.Strategy:
    return dl.MirroredStrategy(jax.devices()[:replicas], shard_variables=32)


def parts(variables: Any) -> list[tuple[int, ...]]:
    """Returns the shapes that a device has of the variables that are divided."""
    arrays = [variable.distlab_variable.storage.array for variable in variables]
    pairs = [(array.sharding.shard_shape(array.shape), array.shape) for array in arrays]
    return [part for part, whole in pairs if part != whole]


def fitted(strategy: dl.Strategy, optimizer: Any) -> tuple[Any, list[Any]]:
    seen: list[Any] = []
    keras.utils.set_random_seed(1)
    with strategy.scope():
        made = model(layers.Dense(6), layers.BatchNormalization(), optimizer=optimizer)
    note = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: seen.append(made.get_weights()))
    history = made.fit(X, Y, epochs=2, validation_data=(X, Y), callbacks=[note], **FIT)
    results = [history.history, seen, made.evaluate(X, Y, verbose=0), made.predict(X, verbose=0)]
    return made, results


def test_fit_has_the_numbers_of_whole_variables() -> None:
    """In ragged batches, too: of the last 4 examples, replicas have 2, 2 and 0."""
    made, results = fitted(divided(3), optimizers.Adam(0.1))
    _, expected = fitted(mirrored(3), optimizers.Adam(0.1))
    for value, wanted in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(value, wanted)
    # Statistics are each replica's own, and biases too small.
    assert parts(made.variables) == [(4, 2), (2, 6), (2, 3)]
    assert parts(made.optimizer.variables) == [(4, 2), (4, 2), (2, 6), (2, 6), (2, 3), (2, 3)]


def test_accumulated_gradients_are_each_replicas_own() -> None:
    made, results = fitted(divided(2), optimizers.SGD(0.1, gradient_accumulation_steps=2))
    _, expected = fitted(mirrored(2), optimizers.SGD(0.1, gradient_accumulation_steps=2))
    np.testing.assert_array_equal(results[-1], expected[-1])
    assert parts(made.optimizer.variables) == []


def test_weights_are_read_assigned_and_saved_whole(tmp_path: Path) -> None:
    with divided(2).scope():
        made = model()
    doubled = [2 * weight for weight in made.get_weights()]
    made.set_weights(doubled)
    made.save(tmp_path / "model.keras")
    with divided(4).scope():
        loaded = keras.models.load_model(tmp_path / "model.keras")
    for own, other, wanted in zip(made.get_weights(), loaded.get_weights(), doubled, strict=True):
        np.testing.assert_array_equal(own, wanted)
        np.testing.assert_array_equal(other, wanted)
    assert (parts(made.variables), parts(loaded.variables)) == ([(2, 6), (3, 3)], [(1, 6)])


def steps(strategy: dl.Strategy, count: int, path: Path | None = None) -> tuple[Any, list[float]]:
    """Trains in a step of the user's own; from a checkpoint, the first step makes the slots."""
    with strategy.scope():
        made = model()
        optimizer = optimizers.Adam(0.1)
    checkpoint = dl.train.Checkpoint(layers=made.layers, optimizer=optimizer)
    if path is not None:
        checkpoint.restore(path)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def step(x: Any, y: Any) -> Any:
        weights = made.trainable_variables
        loss, gradients = dl.keras.value_and_grad(lambda: loss_of(y, made(x)) / 12, weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return loss

    (batch,) = strategy.experimental_distribute_dataset([(X[:12], Y[:12])])
    losses = [
        float(strategy.reduce("SUM", strategy.run(step, args=batch), axis=None))
        for _ in range(count)
    ]
    return checkpoint, losses


def test_own_steps_go_on_from_checkpoints_of_other_parts(tmp_path: Path) -> None:
    _, expected = steps(mirrored(1), 6)
    checkpoint, losses = steps(divided(4), 3)
    assert losses == pytest.approx(expected[:3], rel=1e-6)
    path = Path(checkpoint.save(tmp_path / "ckpt"))
    for strategy in (mirrored(3), divided(2)):
        later, losses = steps(strategy, 3, path)
        assert losses == pytest.approx(expected[3:], rel=1e-6)
    assert parts(later.optimizer.variables) == [(2, 6), (2, 6), (3, 3), (3, 3)]


def test_fit_on_a_model_axis_has_the_numbers_of_whole_variables() -> None:
    """Layouts by which slots of optimizers lie as their variables do."""
    strategy = dl.MirroredStrategy(model_axis=2, layouts={"kernel": ("model", None)})
    made, results = fitted(strategy, optimizers.SGD(0.01, momentum=0.9))
    _, expected = fitted(mirrored(4), optimizers.SGD(0.01, momentum=0.9))
    for value, wanted in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(value, wanted, atol=1e-6)
    assert parts(made.variables) == parts(made.optimizer.variables) == [(2, 6), (3, 6), (3, 3)]


def test_layouts_may_be_those_of_a_layout_map() -> None:
    devices = keras.distribution.list_devices("cpu")
    mesh = keras.distribution.DeviceMesh((4, 2), ("batch", "model"), devices)
    layouts = keras.distribution.LayoutMap(mesh)
    layouts[".*kernel"] = ("model", None)
    with dl.MirroredStrategy(model_axis=2, layouts=layouts).scope():
        assert parts(model().variables) == [(2, 6), (3, 3)]
