"""The same program on any number of replicas trains to the same numbers."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl

STEPS, BATCH, RATE = 50, 32, 0.05
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(203, 5)).astype(np.float32)  # 203 = 6 * 32 + 11: the last batch is partial
Y = np.tanh(X @ _RNG.normal(size=(5, 3))).astype(np.float32)
W = _RNG.normal(size=(5, 3)).astype(np.float32) * 0.1
B = np.zeros(3, np.float32)

Params = tuple[jax.Array, jax.Array]


def _loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sum(jnp.mean((jnp.tanh(x @ params[0] + params[1]) - y) ** 2, axis=-1)) / BATCH


def _plain() -> Params:
    """Single-device JAX without distlab."""
    params = jnp.asarray(W), jnp.asarray(B)
    grad = jax.jit(jax.grad(_loss))
    for step in range(STEPS):
        start = step % 7 * BATCH
        grads = grad(params, X[start : start + BATCH], Y[start : start + BATCH])
        params = params[0] - RATE * grads[0], params[1] - RATE * grads[1]
    return params


def _batches(strategy: dl.Strategy) -> Iterator[tuple[dl.PerReplica, dl.PerReplica]]:
    dataset = dl.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH).repeat().take(STEPS)
    return iter(strategy.experimental_distribute_dataset(dataset))


def _strategy(replicas: int) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


@pytest.mark.parametrize("replicas", [1, 8])
def test_variables_train_to_the_numbers_of_plain_jax(replicas: int) -> None:
    strategy = _strategy(replicas)
    with strategy.scope():
        w, b = dl.Variable(W), dl.Variable(B)

    def step(x: jax.Array, y: jax.Array) -> jax.Array:
        loss, grads = jax.value_and_grad(_loss)((w.value(), b.value()), x, y)
        grads = dl.get_replica_context().all_reduce("SUM", grads)
        w.assign_sub(RATE * grads[0])
        b.assign_sub(RATE * grads[1])
        return loss

    for x, y in _batches(strategy):
        strategy.run(step, args=(x, y))
    expected = _plain()
    for copy in w.values:
        np.testing.assert_allclose(copy, expected[0], atol=1e-5)
    np.testing.assert_allclose(b.numpy(), expected[1], atol=1e-5)
