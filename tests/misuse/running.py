"""Misuse of `run` and inside replica functions."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp

import distlab as dl
from distlab import errors
from tests.misuse.world import World, misuse


@misuse(errors.StructureError, "each of 4 replicas", "PerReplica(2 x", "make it with the str")
def a_value_of_another_strategy(w: World) -> None:
    x = w.other().experimental_distribute_values_from_function(lambda _: jnp.ones(2))
    w.strategy.run(lambda a: a + 1, args=(x,))


@misuse(errors.NeedsPythonError, "only shapes and dtypes", "step needs", "jax.lax.cond instead")
def an_if_on_a_traced_value(w: World) -> None:
    def step(a: jax.Array) -> jax.Array:
        w.weights.assign_add(a)
        return a if a.sum() > 0 else -a

    w.strategy.run(step, args=(w.x,))


@misuse(errors.NeedsPythonError, "Python number", "look needs", "run_functions_eagerly(True)")
def a_variable_made_a_python_number(w: World) -> None:
    def look(a: jax.Array) -> jax.Array:
        return a * float(w.weights[0])

    w.strategy.run(look, args=(w.x,))


@misuse(errors.StructureError, "returns its result", "batches is a gen", "Write a plain function")
def a_generator_function(w: World) -> None:
    def batches(a: jax.Array) -> Iterator[jax.Array]:
        yield a

    w.strategy.run(batches, args=(w.x,))


@misuse(errors.ContextError, "cross-replica context", "MirroredStrategy(CPU:0", "Call it outside")
def run_inside_of_run(w: World) -> None:
    w.strategy.run(lambda a: w.strategy.run(lambda b: b, args=(a,)), args=(w.x,))


@misuse(errors.ContextError, "was kept from inside", "float32[2]", "Return values")
def a_value_kept_from_an_earlier_trace(w: World) -> None:
    kept: list[jax.Array] = []
    w.strategy.run(lambda a: kept.append(a * 2), args=(w.x,))
    w.strategy.run(lambda a: a + kept[0], args=(w.x,))


@misuse(errors.StructureError, "return the same structure", "None", "arrays of size 0")
def a_ragged_step_that_returns_none_on_some_replicas(w: World) -> None:
    w.strategy.run(lambda a: a if a.shape[0] == 3 else None, args=(w.ragged,))


@misuse(errors.ValueShapeError, "same shapes on all replicas", "float32[3]", "Reduce over the")
def an_all_reduce_of_different_shapes(w: World) -> None:
    w.strategy.run(lambda a: dl.get_replica_context().all_reduce("SUM", a), args=(w.ragged,))


@misuse(errors.StructureError, "same collectives", "psum", "Call them on every replica")
def an_all_reduce_on_some_replicas_only(w: World) -> None:
    def step(a: jax.Array) -> jax.Array:
        return a.sum() if a.shape[0] == 1 else dl.get_replica_context().all_reduce("SUM", a.sum())

    w.strategy.run(step, args=(w.ragged,))


@misuse(errors.ContextError, "same collectives", "all_reduce SUM", "in every replica")
def an_eager_all_reduce_on_some_replicas_only(w: World) -> None:
    def step(a: jax.Array) -> jax.Array:
        context = dl.get_replica_context()
        w.weights.assign_add(jnp.ones(2))
        return context.all_reduce("SUM", a) if context.replica_id_in_sync_group else a

    w.strategy.run(step, args=(w.x,), options=dl.RunOptions(run_eagerly=True))


@misuse(errors.ContextError, "inside a JAX transformation", "uses weights", "Call run outside")
def jit_around_a_function_that_uses_a_variable(w: World) -> None:
    jax.jit(lambda x: w.strategy.run(lambda a: a * w.weights.value(), args=(x,)))(w.x)
