"""Sums and means of bools and small whole numbers are those of the numbers, on every way."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl

STRATEGIES = {
    "default algorithm": lambda: dl.MirroredStrategy(["CPU:0", "CPU:1"]),
    "pairs": lambda: dl.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=dl.HierarchicalCopyAllReduce()
    ),
}
CORRECT = [np.array([True, True, False]), np.array([True, False, False])]


def per_replica(strategy: dl.Strategy, values: list[Any]) -> Any:
    return strategy.experimental_distribute_values_from_function(
        lambda context: values[context.replica_id_in_sync_group]
    )


@pytest.mark.parametrize("name", STRATEGIES)
def test_bools_are_counted_by_every_verb(name: str) -> None:
    strategy = STRATEGIES[name]()
    correct = per_replica(strategy, CORRECT)
    assert float(strategy.reduce("MEAN", correct, axis=0)) == 0.5
    assert int(strategy.reduce("SUM", correct, axis=0)) == 3
    assert strategy.reduce("SUM", correct, axis=None).tolist() == [2, 1, 0]
    assert strategy.extended.reduce_to("SUM", correct, "CPU:0").tolist() == [2, 1, 0]
    for eagerly in (False, True):
        options = dl.RunOptions(run_eagerly=eagerly)
        total = strategy.run(
            lambda a: dl.get_replica_context().all_reduce("SUM", a),
            args=(correct,),
            options=options,
        )
        assert [copy.tolist() for copy in total.values] == [[2, 1, 0]] * 2


def test_bools_are_counted_by_one_replica_and_without_a_strategy() -> None:
    correct = jnp.array([True, True, False, True])
    for strategy in (dl.get_strategy(), dl.OneDeviceStrategy("CPU:0")):
        assert float(strategy.reduce("MEAN", correct, axis=0)) == 0.75
        assert int(strategy.reduce("SUM", correct, axis=0)) == 3


def test_a_mean_of_small_whole_numbers_does_not_wrap_around() -> None:
    strategy = STRATEGIES["default algorithm"]()
    pixels = per_replica(strategy, [np.array([200, 203], np.uint8) for _ in range(2)])
    assert float(strategy.reduce("MEAN", pixels, axis=0)) == 201.5
    assert strategy.reduce("MEAN", pixels, axis=None).tolist() == [200.0, 203.0]
    assert strategy.reduce("SUM", pixels, axis=None).dtype == np.uint8  # as in TensorFlow
