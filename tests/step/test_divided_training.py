"""Training with divided variables: the mirrored losses, less memory, each gradient summed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import distlab as dl
from distlab import events
from tests.listening import listening

STEPS: Final = 50
RNG: Final = np.random.default_rng(0)


def weight(*shape: int) -> np.ndarray:
    return (RNG.normal(size=shape) / np.sqrt(np.prod(shape[:-1]))).astype(np.float32)


def perceptron(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jax.nn.relu(x.reshape(len(x), -1) @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]


def transformer(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    h = x @ p["embed"] + p["place"]
    q, k, v = jnp.split((h - h.mean(-1, keepdims=True)) @ p["qkv"], 3, axis=-1)
    h += jax.nn.softmax(q @ k.mT / 4) @ v @ p["out"]
    h += jax.nn.gelu(h * p["scale"] @ p["up"]) @ p["down"]
    return h.mean(1) @ p["head"]


def convolutions(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    h = x.reshape(-1, 8, 8, 1)
    for name in ("c1", "c2"):
        h = jax.nn.relu(jax.lax.conv_general_dilated(
            h, p[name], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        ))  # fmt: skip
    return h.reshape(len(h), -1) @ p["head"]


MODELS: Final[dict[str, tuple[Callable[..., jax.Array], dict[str, np.ndarray]]]] = {
    "perceptron": (
        perceptron,
        {"w1": weight(64, 32), "b1": weight(32), "w2": weight(32, 4), "b2": weight(4)},
    ),
    "transformer": (
        transformer,
        {
            "embed": weight(8, 16),
            "place": weight(8, 16),
            "qkv": weight(16, 48),
            "out": weight(16, 16),
            "scale": weight(16),
            "up": weight(16, 32),
            "down": weight(32, 16),
            "head": weight(16, 4),
        },
    ),
    "convolutions": (
        convolutions,
        {"c1": weight(3, 3, 1, 8), "c2": weight(3, 3, 8, 16), "head": weight(64, 4)},
    ),
}
OPTIMIZERS: Final = {
    "SGD": optax.sgd(0.1, momentum=0.9),
    "Adam": optax.adam(1e-2),
    "clip": optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(1e-2)),
}


def is_variable(leaf: Any) -> bool:
    return isinstance(leaf, dl.Variable)


def values(nest: Any) -> Any:
    return jax.tree.map(lambda v: v.value(), nest, is_leaf=is_variable)


class Training:
    """A model's variables, its optimizer's, and the step."""

    def __init__(self, model: str, optimizer: str, replicas: int, *, shard: int | bool) -> None:
        self.model, weights = MODELS[model]
        self.optimizer = OPTIMIZERS[optimizer]
        devices = [f"CPU:{n}" for n in range(replicas)]
        self.strategy = dl.MirroredStrategy(devices, shard_variables=shard)
        with self.strategy.scope():
            self.weights = {name: dl.Variable(w, name=name) for name, w in weights.items()}
            state = self.optimizer.init(values(self.weights))
            self.state = jax.tree.map(dl.Variable, state)
        rng = np.random.default_rng(1)
        x, y = rng.normal(size=(16, 8, 8)).astype(np.float32), rng.integers(0, 4, 16)
        data = self.strategy.experimental_distribute_dataset([(x, y.astype(np.int32))])
        self.batch = next(iter(data))

    def step(self, x: jax.Array, y: jax.Array) -> jax.Array:
        def loss(p: dict[str, jax.Array]) -> jax.Array:
            losses = optax.softmax_cross_entropy_with_integer_labels(self.model(p, x), y)
            return losses.mean()

        before, state = values(self.weights), values(self.state)
        found, gradients = jax.value_and_grad(loss)(before)
        found, gradients = dl.get_replica_context().all_reduce("MEAN", (found, gradients))
        updates, state = self.optimizer.update(gradients, state, before)
        for name, new in optax.apply_updates(before, updates).items():
            self.weights[name].assign(new)
        olds = jax.tree.leaves(self.state, is_leaf=is_variable)
        for variable, new in zip(olds, jax.tree.leaves(state), strict=True):
            variable.assign(new)
        return found

    def run(self, steps: int) -> list[float]:
        found = [self.strategy.run(self.step, args=self.batch) for _ in range(steps)]
        return [float(loss.values[0]) for loss in found]


@pytest.mark.parametrize(
    ("model", "optimizer", "replicas"),
    [
        ("perceptron", "Adam", 8),
        ("perceptron", "clip", 2),
        ("transformer", "clip", 4),
        ("transformer", "SGD", 8),
        ("convolutions", "Adam", 2),
        ("convolutions", "SGD", 4),
    ],
)
def test_losses_are_those_of_mirrored_variables(model: str, optimizer: str, replicas: int) -> None:
    expected = Training(model, optimizer, replicas, shard=False).run(STEPS)
    found = Training(model, optimizer, replicas, shard=32).run(STEPS)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert expected[-1] < expected[0] / 2


def test_each_gradient_is_summed_once() -> None:
    with listening() as heard:
        training = Training("perceptron", "clip", 8, shard=128)  # all but the last bias
        training.run(1)
        Training("perceptron", "clip", 8, shard=False).run(1)
    divided, mirrored = heard.of(events.Compile)
    assert Counter(one.kind for one in divided.collectives) == {
        "all-gather": 3,
        "reduce-scatter": 3,
        "all-reduce": 1,
    }
    assert Counter(one.kind for one in mirrored.collectives) == {"all-reduce": 1}
    assert divided.temp_bytes is not None
    assert mirrored.temp_bytes is not None
    assert divided.temp_bytes < mirrored.temp_bytes


def test_a_device_holds_its_part_alone() -> None:
    training = Training("perceptron", "Adam", 8, shard=32)
    training.run(2)
    held = [*training.weights.values(), *jax.tree.leaves(training.state, is_leaf=is_variable)]
    sizes = {v.name: v.value().nbytes for v in held}
    parts = Counter[str]()
    for variable in held:
        for shard in variable.value().addressable_shards:
            parts[variable.name] = max(parts[variable.name], shard.data.nbytes)
    whole = {name for name, size in sizes.items() if parts[name] == size}
    assert all(parts[name] * 8 == size for name, size in sizes.items() if name not in whole)
    assert sum(sizes[name] for name in whole) < sum(sizes.values()) / 100


def test_several_steps_in_one_program_carry_parts() -> None:
    with listening() as heard:
        for shard in (128, False):
            training = Training("perceptron", "clip", 8, shard=shard)

            def ten(x: jax.Array, y: jax.Array, training: Training = training) -> jax.Array:
                steps = jnp.arange(10)
                return dl.scan(lambda _, __: (None, training.step(x, y)), None, steps)[1]

            training.strategy.run(ten, args=training.batch)
    divided, mirrored = heard.of(events.Compile)
    assert Counter(one.kind for one in divided.collectives) == {
        "all-gather": 3,
        "reduce-scatter": 3,
        "all-reduce": 1,
    }
    assert {one.times_per_step for one in divided.collectives} == {10}
    assert divided.temp_bytes is not None
    assert mirrored.temp_bytes is not None
    assert divided.temp_bytes < mirrored.temp_bytes


def test_what_is_read_after_its_update_is_gathered_from_parts() -> None:
    """Trains two variables in turns, the second one through the new value of the first."""
    strategy = dl.MirroredStrategy([f"CPU:{n}" for n in range(4)], shard_variables=16)
    with strategy.scope():
        critic, maker = dl.Variable(weight(8, 4)), dl.Variable(weight(8, 4))

    def descend(v: dl.Variable, loss: Callable[[jax.Array], jax.Array]) -> None:
        gradient = jax.grad(loss)(v.value())
        v.assign_sub(0.1 * dl.get_replica_context().all_reduce("MEAN", gradient))

    def step(x: jax.Array) -> None:
        descend(critic, lambda w: jnp.mean(jnp.tanh(x @ w)))
        descend(maker, lambda w: jnp.mean(jnp.tanh(x @ w @ critic.value().T)))

    batch = next(iter(strategy.experimental_distribute_dataset([np.ones((8, 8), np.float32)])))
    with listening() as heard:
        strategy.run(step, args=(batch,))
    (program,) = heard.of(events.Compile)
    counts = Counter(one.kind for one in program.collectives)
    assert counts == {"all-gather": 3, "reduce-scatter": 2}
