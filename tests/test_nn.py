"""Losses averaged over the global batch, with the numbers of `tf.nn`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab.errors import ArgumentTypeError, ArgumentValueError, ContextError, ValueShapeError

MODES = pytest.mark.usefixtures("eager")


@settings(max_examples=10, deadline=None)
@given(examples=st.integers(1, 20), replicas=st.sampled_from([1, 3]))
def test_the_sum_over_replicas_is_the_mean_over_the_batch(examples: int, replicas: int) -> None:
    strategy = dl.MirroredStrategy(jax.devices()[:replicas])
    losses = np.arange(1, examples + 1, dtype=np.float32)
    dataset = dl.data.Dataset.from_tensor_slices(losses).batch(examples)
    (batch,) = strategy.experimental_distribute_dataset(dataset)

    def step(part: jax.Array) -> jax.Array:
        return dl.nn.compute_average_loss(part, global_batch_size=examples)

    total = strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None)
    assert float(total) == pytest.approx(losses.mean(), rel=1e-6)


@MODES
def test_the_size_is_by_default_that_of_equal_parts() -> None:
    strategy = dl.MirroredStrategy(jax.devices()[:2])
    results = strategy.run(lambda: dl.nn.compute_average_loss(jnp.array([2.5, 6.2, 5.0])))
    assert [float(value) for value in results.values] == pytest.approx([13.7 / 6] * 2)


def test_outside_of_a_strategy_it_is_the_mean() -> None:
    assert float(dl.nn.compute_average_loss([1.0, 2.0, 6.0])) == 3.0
    assert float(dl.nn.scale_regularization_loss([1.0, 2.0])) == 3.0


def test_examples_are_weighed() -> None:
    for losses, weights, average in [
        ([2.5, 6.2, 5.0], 2.0, 27.4 / 3),
        ([2.5, 6.2, 5.0], [1.0, 0.0, 2.0], 12.5 / 3),
        ([2.5, 6.2, 5.0], [[1.0], [0.0], [2.0]], 12.5 / 3),
        ([[1.0, 2.0], [3.0, 4.0]], [1.0, 10.0], 73 / 2),
        ([[1.0, 2.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]], 5 / 2),
        ([1, 2, 4], None, 7 / 3),
        ([1, 2], 0.5, 0.75),
    ]:
        assert float(dl.nn.compute_average_loss(losses, weights)) == pytest.approx(average)


def test_the_dtype_is_that_of_the_losses() -> None:
    losses = jnp.array([1.0, 2.0], jnp.bfloat16)
    result = dl.nn.compute_average_loss(losses, jnp.array([1.0, 3.0]), global_batch_size=2)
    assert (result.dtype.name, float(result)) == ("bfloat16", 3.5)


def test_float16_losses_do_not_overflow_before_they_are_divided() -> None:
    for loss, count in ((100.0, 8_000), (0.5, 80_000)):
        losses = jnp.full(count, loss, jnp.float16)
        result = dl.nn.compute_average_loss(losses, global_batch_size=count)
        assert (result.dtype.name, float(result)) == ("float16", loss)


def test_a_size_of_zero_gives_zero_with_zero_gradients() -> None:
    def loss(w: jax.Array, losses: jax.Array, size: int) -> jax.Array:
        return dl.nn.compute_average_loss(w * losses, global_batch_size=size)

    for losses, size in ((jnp.zeros(0), 0), (jnp.zeros(0), 8), (jnp.ones(2), 0)):
        value, gradient = jax.value_and_grad(loss)(2.0, losses, size)
        assert (float(value), float(gradient)) == (0.0, 0.0)


@MODES
def test_the_size_may_be_an_array_known_at_run_time() -> None:
    strategy = dl.MirroredStrategy(jax.devices()[:2])

    def step(size: jax.Array) -> jax.Array:
        return dl.nn.compute_average_loss(jnp.array([4.0, 8.0]), global_batch_size=size)

    assert float(strategy.run(step, args=(4,)).values[1]) == 3.0
    assert float(strategy.run(step, args=(np.int64(6),)).values[1]) == 2.0


def test_a_regularization_loss_counts_once_over_all_replicas() -> None:
    strategy = dl.MirroredStrategy(jax.devices()[:4])
    parts = strategy.run(lambda: dl.nn.scale_regularization_loss(jnp.array([3.0, 5.0])))
    assert float(strategy.reduce("SUM", parts, axis=None)) == 8.0


def test_wrong_arguments_are_refused() -> None:
    wrong: list[Any] = [
        (3.0, {}, ValueShapeError, "loss of each example"),
        ([1.0], {"global_batch_size": 2.5}, ArgumentTypeError, "whole number of examples, got 2.5"),
        ("abc", {}, ArgumentTypeError, "per_example_loss must be an array of numbers, got a str"),
        ([1.0], {"global_batch_size": -1}, ArgumentValueError, "at least 0, got -1"),
        ([1.0, 2.0], {"sample_weight": [1.0, 2.0, 3.0]}, ValueShapeError, r"weights \(3,\)"),
    ]
    for losses, options, error, words in wrong:
        with pytest.raises(error, match=words):
            dl.nn.compute_average_loss(losses, **options)


def test_cross_replica_context_is_refused() -> None:
    with dl.MirroredStrategy(jax.devices()[:2]).scope():
        with pytest.raises(ContextError, match="Pass global_batch_size="):
            dl.nn.compute_average_loss([1.0])
        with pytest.raises(ContextError, match="cross-replica context"):
            dl.nn.scale_regularization_loss([1.0])
        assert float(dl.nn.compute_average_loss([1.0, 2.0], global_batch_size=4)) == 0.75
