"""Objects to save, under any strategy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import distlab as dl

ON_READ = dl.VariableSynchronization.ON_READ
SUM, MEAN = dl.VariableAggregation.SUM, dl.VariableAggregation.MEAN
FIRST, NONE = dl.VariableAggregation.ONLY_FIRST_REPLICA, dl.VariableAggregation.NONE


def strategy_of(replicas: int) -> dl.Strategy:
    """Returns a strategy over the first CPU devices; the default one for 0."""
    if not replicas:
        return dl.get_strategy()
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def variables_of(strategy: dl.Strategy) -> dict[str, dl.Variable]:
    """Makes a variable of each kind."""
    with strategy.scope():
        return {
            "sum": dl.Variable(0.0, synchronization=ON_READ, aggregation=SUM),
            "int_sum": dl.Variable(0, synchronization=ON_READ, aggregation=SUM),
            "mean": dl.Variable(0.0, synchronization=ON_READ, aggregation=MEAN),
            "first": dl.Variable(0.0, synchronization=ON_READ, aggregation=FIRST),
            "mirrored": dl.Variable(jnp.zeros(3)),
            "bfloat16": dl.Variable(jnp.zeros(2, jnp.bfloat16)),
            "empty": dl.Variable(jnp.zeros((0, 2))),
        }


def add_replica_numbers(strategy: dl.Strategy, variables: dict[str, dl.Variable]) -> None:
    """Adds 1 on the first replica, 2 on the second, ... to the ON_READ variables, 0.5 to others."""

    def step() -> None:
        number = dl.get_replica_context().replica_id_in_sync_group + 1
        for name in ("sum", "mean", "first"):
            variables[name].assign_add(jnp.float32(number))
        variables["int_sum"].assign_add(jnp.int32(number))
        variables["mirrored"].assign_add(jnp.full(3, 0.5))
        variables["bfloat16"].assign_add(jnp.full(2, 0.5, jnp.bfloat16))

    strategy.run(step)


def numbers_of(variables: dict[str, dl.Variable]) -> dict[str, Any]:
    """Returns the common values as Python numbers."""
    return {name: jax.device_get(v.value()).tolist() for name, v in variables.items()}
