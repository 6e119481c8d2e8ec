"""Replicas of several devices: a model axis that XLA divides work along."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab import events
from tests.listening import Listener, listening

BATCH, WIDTH, STEPS = 64, 256, 22
LAYOUTS = {"w1$": (None, "model"), "b1$": ("model",), "w2$": ("model", None)}
RANDOM = np.random.default_rng(0)
START = {
    "w1": RANDOM.normal(size=(64, WIDTH)).astype(np.float32) * 0.1,
    "b1": np.zeros(WIDTH, np.float32),
    "w2": RANDOM.normal(size=(WIDTH, 10)).astype(np.float32) * 0.1,
    "b2": np.zeros(10, np.float32),
}
DATA = [
    (RANDOM.random((BATCH, 64)).astype(np.float32), RANDOM.integers(0, 10, BATCH))
    for _ in range(STEPS)
]


def loss_of(p: dict[str, Any], x: jax.Array, y: jax.Array) -> jax.Array:
    logits = jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)
    return -chosen.sum() / BATCH


class Training:
    """A perceptron with momentum, in a strategy's scope."""

    def __init__(self, strategy: dl.Strategy) -> None:
        self.strategy = strategy
        with strategy.scope():
            self.weights = {n: dl.Variable(a, name=n) for n, a in START.items()}
            self.moments = {n: dl.Variable(a * 0, name=f"m/{n}") for n, a in START.items()}

    def step(self, x: jax.Array, y: jax.Array) -> jax.Array:
        values = {name: variable.value() for name, variable in self.weights.items()}
        result = jax.value_and_grad(loss_of)(values, x, y)
        loss, gradients = dl.get_replica_context().all_reduce("SUM", result)
        for name, weight in self.weights.items():
            self.moments[name].assign(0.9 * self.moments[name] + gradients[name])
            weight.assign_sub(0.1 * self.moments[name])
        return loss

    def losses(self, data: list[Any]) -> list[float]:
        batches = self.strategy.experimental_distribute_dataset(data)
        return [float(self.strategy.run(self.step, args=one).values[0]) for one in batches]


def unsplit() -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(4)])


def split(**options: Any) -> dl.MirroredStrategy:
    return dl.MirroredStrategy(model_axis=2, layouts=LAYOUTS, **options)


@pytest.fixture(scope="module")
def trained() -> tuple[Training, list[float], Listener]:
    with listening() as heard:
        training = Training(split())
        losses = training.losses(DATA)
    return training, losses, heard


def test_replicas_of_two_devices_compute_as_of_one(
    trained: tuple[Training, list[float], Listener],
) -> None:
    training, losses, _ = trained
    assert training.strategy.num_replicas_in_sync == 4
    assert training.strategy.device_names == ("CPU:0", "CPU:2", "CPU:4", "CPU:6")
    assert np.abs(np.array(losses) - Training(unsplit()).losses(DATA)).max() <= 2.4e-7


def test_weights_and_moments_stay_divided(
    trained: tuple[Training, list[float], Listener],
) -> None:
    training, _, _ = trained
    held = {
        variable.name: {piece.data.shape for piece in variable.storage.alive().addressable_shards}
        for variable in (*training.weights.values(), *training.moments.values())
    }
    parts = {"w1": {(64, 128)}, "b1": {(128,)}, "w2": {(128, 10)}, "b2": {(10,)}}
    assert held == parts | {f"m/{name}": shapes for name, shapes in parts.items()}


def test_activations_move_in_a_replica_and_gradients_between(
    trained: tuple[Training, list[float], Listener],
) -> None:
    _, _, heard = trained
    (compiled,) = heard.of(events.Compile)
    found = [(c.kind, c.axes, c.wire_bytes) for c in compiled.collectives]
    assert sorted(found) == [
        ("all-reduce", ["model"], 640),
        ("all-reduce", ["replica"], 57_666),
    ]


def test_events_name_axes_and_parts(trained: tuple[Training, list[float], Listener]) -> None:
    _, _, heard = trained
    (strategy,) = heard.of(events.Strategy)
    assert strategy.axes == {"replica": 4, "model": 2}
    assert strategy.devices == [f"CPU:{n}" for n in range(8)]
    placed = {one.name: one for one in heard.of(events.Placement)}
    w1, b2 = placed["w1"], placed["b2"]
    assert (w1.layout, w1.shape, w1.spec) == ("divided", [64, WIDTH], [[], ["model"]])
    assert w1.bytes_per_device == [64 * 128 * 4] * 8
    assert (b2.layout, b2.spec, b2.bytes_per_device) == ("replicated", [], [40] * 8)
