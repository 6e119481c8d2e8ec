"""Steps in which replica 1 of two is slower than the other, by a known factor."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import distlab as dl


def products(strategy: dl.Strategy, rounds: int, times: int) -> Callable[[], Any]:
    """A step of so many products, of which replica 1 has so many times the others'."""

    def train_step() -> Any:
        context = dl.get_replica_context()
        mine = jnp.where(context.replica_id_in_sync_group == 1, rounds * times, rounds)
        square = jnp.full((64, 64), 0.01)
        square = jax.lax.fori_loop(0, mine, lambda _, a: jnp.tanh(a @ a), square)
        return context.all_reduce("MEAN", square.mean())

    return lambda: jax.block_until_ready(strategy.run(train_step))


def waits(strategy: dl.Strategy, milliseconds: float, others: float = 20) -> Callable[[], Any]:
    """A step in which replica 1 waits for so long, and the others less.

    That takes as long whatever else the machine computes.
    """

    def sleep(is_slow: Any) -> Any:
        time.sleep((milliseconds if is_slow else others) / 1e3)
        return np.float32(0)

    def train_step() -> Any:
        context = dl.get_replica_context()
        is_slow = context.replica_id_in_sync_group == 1
        waited = jax.pure_callback(sleep, jax.ShapeDtypeStruct((), jnp.float32), is_slow)
        return context.all_reduce("MEAN", waited)

    return lambda: jax.block_until_ready(strategy.run(train_step))
