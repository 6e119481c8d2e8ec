"""Compares TensorFlow's tutorial step with Keras' objects with the same step in raw JAX and Optax.

Both train the perceptron of the other benches on 8 devices, with Adam and an accuracy, in one
process and in turns; distlab records to a run folder meanwhile.
"""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "jax"

import statistics
import tempfile
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import distlab as dl
from tests.bench import models, work
from tests.bench.raw_jax import MOST_IN_FLIGHT

ROUNDS, SECONDS = 7, 2.0


def with_keras(arrays: Any) -> Callable[[int], None]:
    """Returns what runs steps of distlab with Keras' model, optimizer, loss and metric."""
    strategy = dl.MirroredStrategy()
    with strategy.scope():
        layers = keras.layers
        stack = [layers.Dense(256, "relu"), layers.Dense(256, "relu"), layers.Dense(10)]
        model = keras.Sequential([keras.Input((work.PIXELS,)), *stack])
        optimizer = keras.optimizers.Adam(1e-3)
        accuracy = keras.metrics.SparseCategoricalAccuracy()
        entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
    model.set_weights(work.initial_mlp())

    def train_step(images: jax.Array, labels: jax.Array) -> Any:
        def loss_fn() -> tuple[Any, Any]:
            logits = model(images, training=True)
            return dl.nn.compute_average_loss(entropy(labels, logits)), logits

        (loss, logits), gradients = dl.keras.value_and_grad(
            loss_fn, model.trainable_variables, has_aux=True
        )
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        accuracy.update_state(labels, logits)
        return loss

    columns = tuple(np.concatenate(column) for column in zip(*arrays, strict=True))
    dataset = dl.data.Dataset.from_tensor_slices(columns).batch(work.BATCH)
    batches = list(strategy.experimental_distribute_dataset(dataset))

    def calls(count: int) -> None:
        for i in range(count):
            loss = strategy.run(train_step, args=batches[i % len(batches)])
        jax.block_until_ready((loss, accuracy.result(), model.trainable_variables[0].value))

    return calls


def with_optax(arrays: Any) -> Callable[[int], None]:
    """Returns what runs steps of `jit(shard_map)` with Optax, written by hand."""
    mesh = jax.make_mesh((8,), ("replica",), axis_types=(jax.sharding.AxisType.Auto,))
    split, whole = NamedSharding(mesh, P("replica")), NamedSharding(mesh, P())
    adam = optax.adam(1e-3)
    params = [jax.device_put(value, whole) for value in work.initial_mlp()]
    state = [jax.device_put((params, adam.init(params), jnp.zeros(2)), whole)]

    def one(state: Any, images: jax.Array, labels: jax.Array) -> Any:
        params, moments, counts = state

        def mean(params: Any) -> tuple[jax.Array, jax.Array]:
            logits = models.mlp(params, images)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            return losses.mean(), logits

        (loss, logits), gradients = jax.value_and_grad(mean, has_aux=True)(params)
        right = (logits.argmax(-1) == labels).astype(jnp.float32)
        own = jnp.array([right.sum(), right.size])
        (loss, gradients), seen = jax.lax.pmean((loss, gradients), "replica"), own
        updates, moments = adam.update(gradients, moments, params)
        params = optax.apply_updates(params, updates)
        return (params, moments, counts + jax.lax.psum(seen, "replica")), loss

    mapped = jax.shard_map(
        one,
        mesh=mesh,
        in_specs=(P(), P("replica"), P("replica")),
        out_specs=(P(), P()),
        check_vma=False,
    )
    step = jax.jit(mapped, donate_argnums=0)
    batches = [tuple(jax.device_put(array, split) for array in batch) for batch in arrays]

    def calls(count: int) -> None:
        losses: list[Any] = []
        for i in range(count):
            state[0], loss = step(state[0], *batches[i % len(batches)])
            losses.append(loss)
            if len(losses) > MOST_IN_FLIGHT:
                losses.pop(0).block_until_ready()
        jax.block_until_ready(state[0])

    return calls


def main() -> None:
    """Prints milliseconds a step of both, and the ratio of their medians."""
    dl.use_cpu_devices(8)
    arrays = work.float_batches(work.BATCH, square=False)
    peers = {"Keras' objects on distlab": with_keras(arrays), "raw JAX, Optax": with_optax(arrays)}
    times: dict[str, list[float]] = {name: [] for name in peers}
    with tempfile.TemporaryDirectory() as folder, dl.record(f"{folder}/run"):
        for _ in range(ROUNDS):
            for name, calls in peers.items():
                times[name].append(work.seconds_per_call(calls, SECONDS))
    medians = {name: statistics.median(found) for name, found in times.items()}
    for name, median in medians.items():
        print(f"{name:28} {median * 1e3:7.2f} ms a step ({min(times[name]) * 1e3:.2f} at least)")
    own, raw = medians.values()
    print(f"speed of distlab with Keras' objects: {raw / own:.2f} of raw JAX with Optax")


if __name__ == "__main__":
    main()
