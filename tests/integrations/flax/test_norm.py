"""`distlab.flax.BatchNorm` weighs examples, whatever part of a batch a replica has."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import distlab as dl
from distlab.errors import ContextError

DATA = np.random.default_rng(0).normal(2.0, 3.0, (8, 2, 3)).astype(np.float32)


@pytest.fixture
def strategy() -> dl.Strategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(3)])


def batch(strategy: dl.Strategy, size: int) -> Any:
    dataset = dl.data.Dataset.from_tensor_slices(DATA[:size]).batch(size)
    return next(iter(strategy.experimental_distribute_dataset(dataset)))


def norms() -> tuple[nnx.BatchNorm, nnx.BatchNorm]:
    settings: Any = {"momentum": 0.9, "use_fast_variance": False}
    mine: Any = dl.flax.BatchNorm(3, rngs=nnx.Rngs(0), **settings)
    return mine, nnx.BatchNorm(3, rngs=nnx.Rngs(0), **settings)


def apply(norm: nnx.BatchNorm, x: Any) -> Any:
    return norm(x)


@pytest.mark.parametrize(("size", "eagerly"), [(4, False), (7, True)])
def test_any_batch_gives_what_one_device_gives(
    strategy: dl.Strategy, size: int, eagerly: bool
) -> None:
    mine, alone = norms()
    options = dl.RunOptions(run_eagerly=eagerly)
    result = strategy.run(apply, args=(mine, batch(strategy, size)), options=options)
    expected = alone(DATA[:size])
    np.testing.assert_allclose(np.concatenate(result.values), expected, atol=1e-5)
    np.testing.assert_allclose(mine.mean[...], alone.mean[...], rtol=1e-5)
    np.testing.assert_allclose(mine.var[...], alone.var[...], rtol=1e-5)


def test_its_gradients_are_those_of_one_device(strategy: dl.Strategy) -> None:
    mine, alone = norms()

    def loss(norm: nnx.BatchNorm, x: Any) -> jax.Array:
        return (norm(x) ** 3).sum()

    def step(norm: nnx.BatchNorm, x: Any) -> Any:
        grads = nnx.grad(loss, argnums=(0, 1))(norm, x)
        total = dl.get_replica_context().all_reduce("SUM", grads[0])
        return jax.tree.map(dl.Mirrored, jax.tree.leaves(total)), grads[1]

    total, inputs = strategy.run(step, args=(mine, batch(strategy, 7)))
    expected = nnx.grad(loss, argnums=(0, 1))(alone, jnp.asarray(DATA[:7]))
    for value, one in zip(total, jax.tree.leaves(expected[0]), strict=True):
        np.testing.assert_allclose(value.values[0], one, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(np.concatenate(inputs.values), expected[1], rtol=1e-3, atol=1e-4)


def test_it_uses_stored_statistics_and_masks_as_flax_does(strategy: dl.Strategy) -> None:
    mine, alone = norms()
    result = strategy.run(
        lambda norm, x: norm(x, use_running_average=True), args=(mine, batch(strategy, 7))
    )
    np.testing.assert_allclose(
        np.concatenate(result.values), alone(DATA[:7], use_running_average=True), rtol=1e-6
    )
    strategy.run(lambda norm, x: norm(x, mask=x > 0), args=(mine, batch(strategy, 7)))
    alone(DATA[:7], mask=jnp.asarray(DATA[:7] > 0))
    np.testing.assert_allclose(mine.mean[...], alone.mean[...], rtol=1e-5)
    strategy.run(lambda norm, x: norm(x[:0]), args=(mine, batch(strategy, 7)))
    np.testing.assert_allclose(mine.mean[...], alone.mean[...], rtol=1e-5)


def test_it_trains_outside_of_a_scope_and_needs_a_replica_inside(strategy: dl.Strategy) -> None:
    mine, alone = norms()
    np.testing.assert_allclose(mine(DATA), alone(DATA), atol=1e-5)
    with strategy.scope(), pytest.raises(ContextError, match=r"strategy\.run"):
        mine(DATA)
