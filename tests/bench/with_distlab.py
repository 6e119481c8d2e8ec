"""The same work with distlab, as a user writes it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import distlab as dl
from tests.bench import models, work


class WithDistlab(work.Peer):
    """The tasks with distlab; nothing is recorded to disk."""

    mlp = staticmethod(models.mlp)
    cnn = staticmethod(models.cnn)

    def __init__(self, replicas: int) -> None:
        dl.use_cpu_devices(replicas)
        self.strategy = dl.MirroredStrategy()
        self.replicas = replicas

    def recording(self) -> AbstractContextManager[object]:
        """Returns what is entered around the measurement."""
        return nullcontext()

    def _timed(self, calls: Callable[[int], None], seconds: float, **options: Any) -> float:
        with self.recording():
            return work.seconds_per_call(calls, seconds, **options)

    def batches(self, arrays: Any, size: int, *, shuffle: bool = False) -> Any:
        """Returns batches of a dataset of arrays, divided over the replicas."""
        dataset = dl.data.Dataset.from_tensor_slices(arrays)
        if shuffle:
            dataset = dataset.shuffle(len(arrays[1]), seed=0)
        return self.strategy.experimental_distribute_dataset(dataset.batch(size))

    def dispatch(self, seconds: float) -> float:
        size = 8 * self.replicas
        x = next(iter(self.batches(np.zeros((size, 128), np.float32), size)))

        def add_one(v: jax.Array) -> jax.Array:
            return v + 1

        def calls(count: int) -> None:
            for _ in range(count):
                y = self.strategy.run(add_one, args=(x,))
            jax.block_until_ready(y)

        return self._timed(calls, seconds)

    def dispatch_10(self, seconds: float) -> float:
        size = 8 * self.replicas
        x = next(iter(self.batches(np.zeros((size, 128), np.float32), size)))

        def add_ten(v: jax.Array) -> Any:
            return dl.scan(lambda v, _: (v + 1, None), v, length=work.STEPS)[0]

        def calls(count: int) -> None:
            for _ in range(count):
                y = self.strategy.run(add_ten, args=(x,))
            jax.block_until_ready(y)

        return self._timed(calls, seconds) / work.STEPS

    def step(self, model: models.Model, start: Any, batch: int) -> tuple[Any, list[dl.Variable]]:
        """Returns a training step of batches of this size, and its parameters."""
        with self.strategy.scope():
            params = [dl.Variable(value) for value in start]

        def step(images: jax.Array, labels: jax.Array) -> jax.Array:
            def mean(values: models.Arrays) -> jax.Array:
                return models.losses(model, values, images, labels).sum() / batch

            values = [variable.value() for variable in params]
            loss, gradients = jax.value_and_grad(mean)(values)
            context = dl.get_replica_context()
            assert context is not None
            loss, gradients = context.all_reduce("SUM", (loss, gradients))
            for variable, value in zip(params, models.descend(values, gradients), strict=True):
                variable.assign(value)
            return loss

        return step, params

    def train_mlp_10(self, seconds: float) -> float:
        arrays = work.float_batches(work.BATCH, square=False)
        step, params = self.step(models.mlp, work.initial_mlp(), work.BATCH)
        columns = tuple(np.concatenate(column) for column in zip(*arrays, strict=True))
        batches = list(self.batches(columns, work.BATCH))
        several = [batches[i % len(batches)] for i in range(work.STEPS)]

        def ten(batches: Any) -> Any:
            rows = jax.tree.map(lambda *parts: jnp.stack(parts), *batches)
            return dl.scan(lambda _, batch: (None, step(*batch)), None, rows)[1]

        def calls(count: int) -> None:
            for _ in range(count):
                losses = self.strategy.run(ten, args=(several,))
            jax.block_until_ready((losses, [jnp.asarray(v.read_value()) for v in params]))

        return self._timed(calls, seconds) / work.STEPS

    def train(self, model: models.Model, start: Any, arrays: Any, seconds: float) -> float:
        size = len(arrays[0][1])
        step, params = self.step(model, start, size)
        columns = tuple(np.concatenate(column) for column in zip(*arrays, strict=True))
        batches = list(self.batches(columns, size))

        def calls(count: int) -> None:
            for i in range(count):
                loss = self.strategy.run(step, args=batches[i % 4])
            jax.block_until_ready((loss, [jnp.asarray(v.read_value()) for v in params]))

        return self._timed(calls, seconds)

    def feed(self, seconds: float) -> float:
        batches = self.batches(work.data(), work.BATCH, shuffle=True)

        def calls(count: int) -> None:
            for _ in range(count):
                for batch in batches:
                    jax.block_until_ready(batch)

        return self._timed(calls, seconds)

    def end_to_end(self, seconds: float) -> float:
        step, params = self.step(models.mlp, work.initial_mlp(), work.BATCH)
        batches = self.batches(work.data(), work.BATCH, shuffle=True)

        def calls(count: int) -> None:
            for _ in range(count):
                for variable, value in zip(params, work.initial_mlp(), strict=True):
                    variable.assign(value)
                for _ in range(work.EPOCHS):
                    losses = [self.strategy.run(step, args=batch) for batch in batches]
                    _ = np.mean([float(loss.values[0]) for loss in losses])

        return self._timed(calls, seconds, least=1)

    def partial(self, seconds: float) -> float:
        step, params = self.step(models.mlp, work.initial_mlp(), work.BATCH)
        batches = self.batches(work.data(work.PARTIAL_ROWS), work.BATCH, shuffle=True)

        def calls(count: int) -> None:
            for _ in range(count):
                for batch in batches:
                    self.strategy.run(step, args=batch)
                jax.block_until_ready([jnp.asarray(v.read_value()) for v in params])

        return self._timed(calls, seconds, least=1)

    def reduce(self, size: int, seconds: float) -> float:
        rows = np.ones((self.replicas, size // 4), np.float32)
        x = next(iter(self.batches(rows, self.replicas)))

        def calls(count: int) -> None:
            for _ in range(count):
                jax.block_until_ready(self.strategy.reduce("SUM", x, axis=None))

        return self._timed(calls, seconds)


class Recording(WithDistlab):
    """The tasks with distlab while everything is recorded to a run folder."""

    def __init__(self, replicas: int) -> None:
        super().__init__(replicas)
        self._folder = TemporaryDirectory()

    def recording(self) -> AbstractContextManager[object]:
        """Returns a recording to a new folder."""
        return dl.record(Path(self._folder.name) / "run")
