"""The limit to compare with: `jit(shard_map)` written by hand, without distlab."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.bench import work

MOST_IN_FLIGHT = 8
"""More than 32 steps with collectives in flight can deadlock CPU devices."""


def keep_large_buffers() -> None:
    """Does for raw JAX what `distlab.use_cpu_devices` does: glibc keeps large buffers."""
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 1 << 30)
    libc.mallopt(-1, 1 << 30)


class RawJax:
    """The tasks in raw JAX."""

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
        """Returns seconds per trivial step; none is awaited but the last."""
        add_one = self._mapped(lambda v: v + 1, P("replica"), P("replica"))
        x = jax.device_put(np.zeros((8 * self.replicas, 128), np.float32), self.split)

        def calls(count: int) -> None:
            for _ in range(count):
                y = add_one(x)
            jax.block_until_ready(y)

        return work.seconds_per_call(calls, seconds)

    def train(self, seconds: float) -> float:
        """Returns seconds per training step of the perceptron."""

        def one(params: work.Arrays, images: jax.Array, labels: jax.Array) -> Any:
            loss, gradients = jax.value_and_grad(work.mean_loss)(params, images, labels)
            loss, gradients = jax.lax.pmean((loss, gradients), "replica")
            return work.descend(params, gradients), loss

        inputs = (P(), P("replica"), P("replica"))
        step = self._mapped(one, inputs, (P(), P()), donate_argnums=0)
        images, labels = work.float_data(4)
        batches = [
            jax.device_put((x, y), self.split)
            for x, y in zip(np.split(images, 4), np.split(labels, 4), strict=True)
        ]
        state = [jax.device_put(work.initial(), self.whole)]

        def calls(count: int) -> None:
            params, waiting = state[0], deque[jax.Array]()
            for i in range(count):
                params, loss = step(params, *batches[i % 4])
                waiting.append(loss)
                if len(waiting) > MOST_IN_FLIGHT:
                    waiting.popleft().block_until_ready()
            state[0] = jax.block_until_ready(params)

        return work.seconds_per_call(calls, seconds)

    def feed(self, seconds: float) -> float:
        """Returns seconds per epoch of shuffled batches put on the devices."""
        images, labels = work.data()
        rng = np.random.default_rng(0)

        def calls(count: int) -> None:
            for _ in range(count):
                order = rng.permutation(len(images))
                for at in range(0, len(order), work.BATCH):
                    chosen = order[at : at + work.BATCH]
                    batch = jax.device_put((images[chosen], labels[chosen]), self.split)
                    jax.block_until_ready(batch)

        return work.seconds_per_call(calls, seconds)
