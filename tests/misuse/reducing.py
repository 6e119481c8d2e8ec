"""Misuse of `reduce`, `gather`, the collectives, and of per-replica values as arrays."""

from __future__ import annotations

import jax.numpy as jnp

import distlab as dl
from distlab import errors
from tests.misuse.world import World, misuse


@misuse(errors.ValueShapeError, "out of range", "axis 3", "Use axis=None")
def an_axis_that_is_not_there(w: World) -> None:
    w.strategy.reduce("SUM", w.x, axis=3)


@misuse(errors.ValueShapeError, "element by element", "[3], [3], [1], [1]", "Use axis=0")
def components_of_different_sizes_without_an_axis(w: World) -> None:
    w.strategy.reduce("SUM", w.ragged, axis=None)


@misuse(errors.ValueShapeError, "needs a per-replica value", "ArrayImpl", "what run returned")
def the_sum_of_a_plain_array(w: World) -> None:
    w.strategy.reduce("SUM", jnp.ones(2), axis=None)


@misuse(errors.StructureError, "for each of 4 replicas", "PerReplica(2", "make it with the str")
def reduce_of_another_strategys_value(w: World) -> None:
    x = w.other().experimental_distribute_values_from_function(lambda _: jnp.ones(2))
    w.strategy.reduce("MEAN", x, axis=None)


@misuse(errors.ValueShapeError, "along an axis", "shape []", "Reshape scalars to [1]")
def gather_of_scalars(w: World) -> None:
    w.strategy.gather(w.strategy.run(lambda a: a.sum(), args=(w.x,)), axis=0)


@misuse(errors.ValueShapeError, "agree in all other dimensions", "[2, 1]", "Pad them")
def an_eager_all_gather_of_components_that_differ_elsewhere(w: World) -> None:
    def step() -> object:
        context = dl.get_replica_context()
        w.own.assign_add(1.0)
        return context.all_gather(jnp.ones((2, context.replica_id_in_sync_group + 1)), 0)

    w.strategy.run(step, options=dl.RunOptions(run_eagerly=True))


@misuse(errors.StructureError, "value for each replica", "PerReplica(4 x float32[2])", "reduce")
def arithmetic_with_a_per_replica_value(w: World) -> None:
    w.x + 1


@misuse(errors.StructureError, "can't be used as one array", "float32[]", "gather")
def a_per_replica_loss_printed_as_a_number(w: World) -> None:
    print(f"{w.strategy.run(lambda a: a.sum(), args=(w.x,)):.3f}")
