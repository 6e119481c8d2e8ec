"""The same work with distlab, as a user writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import distlab as dl
from tests.bench import work


class WithDistlab:
    """The tasks with distlab; nothing is recorded to disk."""

    def __init__(self, replicas: int) -> None:
        dl.use_cpu_devices(replicas)
        self.strategy = dl.MirroredStrategy()
        self.replicas = replicas

    def _batches(self, arrays: Any, size: int) -> Any:
        dataset = dl.data.Dataset.from_tensor_slices(arrays).batch(size)
        return self.strategy.experimental_distribute_dataset(dataset)

    def dispatch(self, seconds: float) -> float:
        """Returns seconds per trivial step; none is awaited but the last."""
        size = 8 * self.replicas
        x = next(iter(self._batches(np.zeros((size, 128), np.float32), size)))

        def add_one(v: jax.Array) -> jax.Array:
            return v + 1

        def calls(count: int) -> None:
            for _ in range(count):
                y = self.strategy.run(add_one, args=(x,))
            jax.block_until_ready(y)

        return work.seconds_per_call(calls, seconds)

    def train(self, seconds: float) -> float:
        """Returns seconds per training step of the perceptron."""
        with self.strategy.scope():
            params = [dl.Variable(value) for value in work.initial()]

        def step(images: jax.Array, labels: jax.Array) -> jax.Array:
            values = [variable.value() for variable in params]
            loss, gradients = jax.value_and_grad(work.mean_loss)(values, images, labels)
            context = dl.get_replica_context()
            assert context is not None
            loss, gradients = context.all_reduce("MEAN", (loss, gradients))
            for variable, value in zip(params, work.descend(values, gradients), strict=True):
                variable.assign(value)
            return loss

        batches = list(self._batches(work.float_data(4), work.BATCH))

        def calls(count: int) -> None:
            for i in range(count):
                loss = self.strategy.run(step, args=batches[i % 4])
            jax.block_until_ready((loss, [jnp.asarray(v.read_value()) for v in params]))

        return work.seconds_per_call(calls, seconds)

    def feed(self, seconds: float) -> float:
        """Returns seconds per epoch of shuffled batches put on the devices."""
        images, labels = work.data()
        dataset = dl.data.Dataset.from_tensor_slices((images, labels))
        dataset = dataset.shuffle(len(images), seed=0).batch(work.BATCH)
        batches = self.strategy.experimental_distribute_dataset(dataset)

        def calls(count: int) -> None:
            for _ in range(count):
                for batch in batches:
                    jax.block_until_ready(batch)

        return work.seconds_per_call(calls, seconds)


class Recording(WithDistlab):
    """The tasks with distlab while everything is recorded to a run folder."""

    def _recorded(self, task: Callable[[float], float], seconds: float) -> float:
        with TemporaryDirectory() as folder, dl.record(Path(folder) / "run"):
            return task(seconds)

    def dispatch(self, seconds: float) -> float:
        """Returns seconds per trivial step, recorded."""
        return self._recorded(super().dispatch, seconds)

    def train(self, seconds: float) -> float:
        """Returns seconds per training step, recorded."""
        return self._recorded(super().train, seconds)

    def feed(self, seconds: float) -> float:
        """Returns seconds per epoch of batches, recorded."""
        return self._recorded(super().feed, seconds)
