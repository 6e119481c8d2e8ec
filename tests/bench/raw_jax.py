"""The limit to compare with: `jit(shard_map)` written by hand, without distlab."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.bench import models, work

MOST_IN_FLIGHT = 8
"""More than 32 steps with collectives in flight can deadlock CPU devices."""


def keep_large_buffers() -> None:
    """Does for raw JAX what `distlab.use_cpu_devices` does: glibc keeps large buffers."""
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 1 << 30)
    libc.mallopt(-1, 1 << 30)


class RawJax(work.Peer):
    """The tasks in raw JAX."""

    mlp = staticmethod(models.mlp)
    cnn = staticmethod(models.cnn)

    def __init__(self, replicas: int) -> None:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", replicas)
        self.replicas = replicas
        self.mesh = Mesh(np.array(jax.devices()), ("replica",))
        self.split = NamedSharding(self.mesh, P("replica"))
        self.whole = NamedSharding(self.mesh, P())

    def _mapped(self, fn: Callable[..., Any], inputs: Any, outputs: Any, **options: Any) -> Any:
        mapped = jax.shard_map(
            fn, mesh=self.mesh, in_specs=inputs, out_specs=outputs, check_vma=False
        )
        return jax.jit(mapped, **options)

    def dispatch(self, seconds: float) -> float:
        add_one = self._mapped(lambda v: v + 1, P("replica"), P("replica"))
        x = jax.device_put(np.zeros((8 * self.replicas, 128), np.float32), self.split)

        def calls(count: int) -> None:
            for _ in range(count):
                y = add_one(x)
            jax.block_until_ready(y)

        return work.seconds_per_call(calls, seconds)

    def dispatch_10(self, seconds: float) -> float:
        def add_ten(v: jax.Array) -> jax.Array:
            return jax.lax.scan(lambda v, _: (v + 1, None), v, length=work.STEPS)[0]

        mapped = self._mapped(add_ten, P("replica"), P("replica"))
        x = jax.device_put(np.zeros((8 * self.replicas, 128), np.float32), self.split)

        def calls(count: int) -> None:
            for _ in range(count):
                y = mapped(x)
            jax.block_until_ready(y)

        return work.seconds_per_call(calls, seconds) / work.STEPS

    def _step(self, model: models.Model) -> Any:
        def one(params: models.Arrays, images: jax.Array, labels: jax.Array) -> Any:
            def mean(params: models.Arrays) -> jax.Array:
                return models.losses(model, params, images, labels).mean()

            loss, gradients = jax.value_and_grad(mean)(params)
            loss, gradients = jax.lax.pmean((loss, gradients), "replica")
            return models.descend(params, gradients), loss

        inputs = (P(), P("replica"), P("replica"))
        return self._mapped(one, inputs, (P(), P()), donate_argnums=0)

    def _ten_steps(self, model: models.Model) -> Any:
        def one(params: models.Arrays, batch: Any) -> Any:
            def mean(params: models.Arrays) -> jax.Array:
                return models.losses(model, params, *batch).mean()

            loss, gradients = jax.value_and_grad(mean)(params)
            loss, gradients = jax.lax.pmean((loss, gradients), "replica")
            return models.descend(params, gradients), loss

        def ten(params: models.Arrays, batches: Any) -> Any:
            rows = jax.tree.map(lambda *parts: jnp.stack(parts), *batches)
            return jax.lax.scan(one, params, rows)

        return self._mapped(ten, (P(), P("replica")), (P(), P()), donate_argnums=0)

    def _masked_step(self) -> Any:
        """Returns a step that takes a mask: what is needed for a batch that does not divide."""

        def one(
            params: models.Arrays, images: jax.Array, labels: jax.Array, mask: jax.Array
        ) -> Any:
            def total(params: models.Arrays) -> jax.Array:
                return jnp.sum(mask * models.losses(models.mlp, params, images, labels))

            loss, gradients = jax.value_and_grad(total)(params)
            loss, gradients, count = jax.lax.psum((loss, gradients, mask.sum()), "replica")
            return models.descend(params, [g / count for g in gradients]), loss / count

        inputs = (P(), P("replica"), P("replica"), P("replica"))
        return self._mapped(one, inputs, (P(), P()), donate_argnums=0)

    def _trained(self, step: Any, params: Any, batches: Iterable[Any]) -> tuple[Any, list[Any]]:
        """Trains without awaiting more than it must; returns the parameters and the losses."""
        losses, waiting = [], deque[jax.Array]()
        for batch in batches:
            params, loss = step(params, *batch)
            losses.append(loss)
            waiting.append(loss)
            if len(waiting) > MOST_IN_FLIGHT:
                waiting.popleft().block_until_ready()
        return jax.block_until_ready(params), losses

    def train_mlp_10(self, seconds: float) -> float:
        arrays = work.float_batches(work.BATCH, square=False)
        step = self._ten_steps(models.mlp)
        batches = jax.device_put(arrays, self.split)
        several = [batches[i % len(batches)] for i in range(work.STEPS)]
        state = [jax.device_put(work.initial_mlp(), self.whole)]

        def calls(count: int) -> None:
            state[0], _ = self._trained(step, state[0], ((several,) for _ in range(count)))

        return work.seconds_per_call(calls, seconds) / work.STEPS

    def train(self, model: models.Model, start: Any, arrays: Any, seconds: float) -> float:
        step = self._step(model)
        batches = jax.device_put(arrays, self.split)
        state = [jax.device_put(start, self.whole)]

        def calls(count: int) -> None:
            state[0], _ = self._trained(step, state[0], (batches[i % 4] for i in range(count)))

        return work.seconds_per_call(calls, seconds)

    def feed(self, seconds: float) -> float:
        images, labels = work.data()

        def calls(count: int) -> None:
            for epoch in range(count):
                for batch in work.shuffled(images, labels, epoch):
                    jax.block_until_ready(jax.device_put(batch, self.split))

        return work.seconds_per_call(calls, seconds)

    def end_to_end(self, seconds: float) -> float:
        images, labels = work.data()
        step = self._step(models.mlp)

        def calls(count: int) -> None:
            for _ in range(count):
                params = jax.device_put(work.initial_mlp(), self.whole)
                for epoch in range(work.EPOCHS):
                    batches = work.shuffled(images, labels, epoch)
                    placed = (jax.device_put(batch, self.split) for batch in batches)
                    params, losses = self._trained(step, params, placed)
                    _ = np.mean([float(loss) for loss in losses])

        return work.seconds_per_call(calls, seconds, least=1)

    def partial(self, seconds: float) -> float:
        images, labels = work.data(work.PARTIAL_ROWS)
        step = self._masked_step()

        def padded(batch: tuple[work.Images, work.Labels]) -> Any:
            count = len(batch[1])
            mask = np.arange(work.BATCH) < count
            rows = [np.concatenate([v, v[:1].repeat(work.BATCH - count, 0)]) for v in batch]
            arrays = rows if count < work.BATCH else batch
            return jax.device_put((*arrays, mask.astype(np.float32)), self.split)

        def calls(count: int) -> None:
            for _ in range(count):
                params = jax.device_put(work.initial_mlp(), self.whole)
                self._trained(step, params, map(padded, work.shuffled(images, labels, 0)))

        return work.seconds_per_call(calls, seconds, least=1)

    def reduce(self, size: int, seconds: float) -> float:
        total = self._mapped(lambda v: jax.lax.psum(v, "replica"), P("replica"), P())
        x = jax.device_put(np.ones((self.replicas, size // 4), np.float32), self.split)

        def calls(count: int) -> None:
            for _ in range(count):
                jax.block_until_ready(total(x))

        return work.seconds_per_call(calls, seconds)
