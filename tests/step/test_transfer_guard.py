"""`jax.transfer_guard("disallow")`, with which people look for transfers that they did not ask for.

Verbs that move values to devices, or from them, are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import distlab as dl

ROWS = np.arange(20, dtype=np.float32).reshape(10, 2)


def test_a_training_loop_runs_where_transfers_are_disallowed() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        weights = dl.Variable(jnp.ones(2))
    dataset = dl.data.Dataset.from_tensor_slices(ROWS).batch(4)

    def step(rows: Any) -> Any:
        mean = dl.get_replica_context().all_reduce("MEAN", rows.sum() / 2)
        weights.assign_sub(0.5 * mean * np.ones(2, np.float32))
        return rows.sum(axis=1)

    sums = []
    with jax.transfer_guard("disallow"):
        for batch in strategy.experimental_distribute_dataset(dataset):
            result = strategy.run(step, args=(batch,))
            sums.append(float(strategy.reduce("MEAN", result, axis=0)))
        trained = weights.numpy()
    assert sums == [ROWS[n : n + 4].sum(axis=1).mean() for n in (0, 4, 8)]
    expected = 1 - 0.125 * ROWS.sum()
    np.testing.assert_allclose(trained, [expected, expected], rtol=1e-6)


PLACING: dict[str, Callable[[dl.Strategy, dl.Variable], Any]] = {
    "assign": lambda _, v: v.assign(np.full(2, 3.0, np.float32)).numpy(),
    "assign_add of a list": lambda _, v: v.assign_add([2.0, 2.0]).numpy(),
    "values from a function": lambda s, _: s.reduce(
        "MEAN",
        s.experimental_distribute_values_from_function(lambda _: np.full(2, 3.0, np.float32)),
        axis=None,
    ),
    "replicate": lambda s, _: s.reduce("MEAN", s.replicate(np.full(2, 3.0)), axis=None),
    "an argument": lambda s, v: s.reduce("MEAN", s.run(lambda x: x + v, args=(2.0,)), axis=None),
}


def test_verbs_place_their_values_where_transfers_are_disallowed() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    for name, place in PLACING.items():
        with strategy.scope():
            variable = dl.Variable(jnp.ones(2))
        with jax.transfer_guard("disallow"):
            assert np.asarray(place(strategy, variable)).tolist() == [3.0, 3.0], name


def test_a_variable_is_read_under_the_transfer_guard() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        seen = dl.Variable(
            jnp.zeros(2),
            synchronization=dl.VariableSynchronization.ON_READ,
            aggregation=dl.VariableAggregation.SUM,
        )
    strategy.run(lambda: seen.assign(jnp.full(2, 3.0)))
    with jax.transfer_guard("disallow"):
        found = seen.value()
    assert found.tolist() == [6.0, 6.0]
