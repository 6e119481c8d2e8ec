"""Misuse of scopes and contexts."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import distlab as dl
from distlab import errors
from tests.misuse.world import World, misuse


@misuse(errors.ContextError, "One strategy can be current", "(CPU:0, CPU:1)", "leave that scope")
def the_scope_of_another_strategy_inside(w: World) -> None:
    with w.strategy.scope(), w.other().scope():
        pass


@misuse(errors.ContextError, "All replicas must", "merge_call", "in every replica")
def an_eager_merge_call_that_only_some_replicas_come_to(w: World) -> None:
    def step(a: jax.Array) -> jax.Array:
        context = dl.get_replica_context()
        if context.replica_id_in_sync_group == 2:
            context.merge_call(lambda _: w.weights.assign(jnp.zeros(2)))
        return a

    w.strategy.run(step, args=(w.x,), options=dl.RunOptions(run_eagerly=True))


@misuse(errors.StructureError, "value for each replica", "TracedPerReplica", "strategy.reduce")
def a_per_replica_value_in_a_merge_call_taken_for_an_array(w: World) -> None:
    def step(a: jax.Array) -> object:
        return dl.get_replica_context().merge_call(lambda _, v: v + 1, args=(a,))

    w.strategy.run(step, args=(w.x,))
