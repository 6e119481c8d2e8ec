"""Numbers of less than a byte, such as int4, which JAX refuses in programs compiled in advance."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl


def strategies() -> list[dl.Strategy]:
    return [dl.MirroredStrategy(["CPU:0", "CPU:1"]), dl.OneDeviceStrategy("CPU:0")]


def numbers(strategy: dl.Strategy, value: Any) -> list[Any]:
    return [
        np.asarray(part).astype(float).tolist()
        for part in strategy.experimental_local_results(value)
    ]


@pytest.mark.parametrize("dtype", [jnp.int4, jnp.float4_e2m1fn])
def test_they_are_arguments_and_results(dtype: Any) -> None:
    for strategy in strategies():
        value: Any = jnp.zeros(2, dtype)
        calls: list[Any] = []

        def step(x: Any, calls: list[Any] = calls) -> Any:
            calls.append(x)
            return x + jnp.ones((), dtype)

        value = strategy.run(step, args=(value,))
        assert numbers(strategy, value)[0] == [1.0, 1.0]
        for _ in range(3):
            result = strategy.run(step, args=(value,))
            assert (
                numbers(strategy, result)
                == [(jnp.ones(2, dtype) + jnp.ones((), dtype)).astype(float).tolist()]
                * strategy.num_replicas_in_sync
            )
        assert len(calls) <= 2  # traced for one array for all, and for one of each replica


def test_their_memory_can_be_given_away() -> None:
    strategy = strategies()[0]
    state = strategy.replicate(jnp.zeros(2, jnp.int4))
    for _ in range(3):
        state = strategy.run(
            lambda x: x + 1, args=(state,), options=dl.RunOptions(donate_argnums=(0,))
        )
    assert numbers(strategy, state) == [[3.0, 3.0]] * 2


def test_replicas_may_have_different_shapes_of_them() -> None:
    strategy = strategies()[0]
    (batch,) = strategy.experimental_distribute_dataset([np.ones(3, jnp.int4)])
    assert numbers(strategy, strategy.run(lambda x: x + 1, args=(batch,))) == [[2.0, 2.0], [2.0]]

    def total(x: Any) -> Any:
        packed = (x * 2).astype(jnp.int4)
        return dl.get_replica_context().all_reduce("SUM", packed.astype(jnp.float32).sum())

    (rows,) = strategy.experimental_distribute_dataset([np.ones(3, np.float32)])
    assert numbers(strategy, strategy.run(total, args=(rows,))) == [6.0, 6.0]


@pytest.mark.parametrize(
    ("synchronization", "aggregation", "total"),
    [("ON_WRITE", "SUM", 4.0), ("ON_READ", "ONLY_FIRST_REPLICA", 2.0)],
)
def test_variables_hold_them(synchronization: str, aggregation: str, total: float) -> None:
    strategy = strategies()[0]
    with strategy.scope():
        v = dl.Variable(
            jnp.zeros(2, jnp.int4),
            synchronization=dl.VariableSynchronization[synchronization],
            aggregation=dl.VariableAggregation[aggregation],
        )
    ones = jnp.ones(2, jnp.int4)
    for _ in range(2):
        strategy.run(lambda: v.assign_add(ones * jnp.ones((), jnp.int4)))
    assert v.numpy().astype(float).tolist() == [total, total]
    assert v.dtype == jnp.int4
