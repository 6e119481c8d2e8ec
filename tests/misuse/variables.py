"""Misuse of variables."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import distlab as dl
from distlab import errors
from tests.misuse.world import World, misuse


@misuse(errors.ValueShapeError, "a MEAN of integers", "int32", "Use SUM")
def a_mean_of_integers(w: World) -> None:
    with w.strategy.scope():
        dl.Variable(1, aggregation=dl.VariableAggregation.MEAN)


@misuse(errors.ContextError, "at every call", "late", "before the step")
def a_variable_made_in_a_step(w: World) -> None:
    w.strategy.run(lambda: dl.Variable(1.0, name="late").value())


@misuse(errors.ValueShapeError, "weights is float32[2]", "float32[3]", "of that shape and dtype")
def an_assignment_of_another_shape(w: World) -> None:
    w.weights.assign(jnp.ones(3))


@misuse(errors.ValueShapeError, "weights is float32[2]", "int32[2]", "array.astype")
def an_assignment_of_another_dtype(w: World) -> None:
    w.weights.assign(jnp.ones(2, jnp.int32))


@misuse(errors.ContextError, "assigned inside jax.lax.scan", "weights", "Use dl.scan")
def an_assignment_inside_of_scan(w: World) -> None:
    def step(a: jax.Array) -> None:
        def body(carry: int, _: None) -> tuple[int, None]:
            w.weights.assign_add(a)
            return carry, None

        jax.lax.scan(body, 0, None, length=3)

    w.strategy.run(step, args=(w.x,))


@misuse(errors.ContextError, "assigned inside jax.jit", "weights", "Return the value")
def an_eager_assignment_inside_of_jit(w: World) -> None:
    def step(a: jax.Array) -> None:
        jax.jit(lambda b: w.weights.assign_add(b) and None)(a)

    w.strategy.run(step, args=(w.x,), options=dl.RunOptions(run_eagerly=True))


@misuse(errors.ContextError, "compile its present value in", "weights", "variable.value()")
def a_read_inside_of_the_users_own_jit(w: World) -> None:
    jax.jit(lambda x: x + w.weights)(jnp.zeros(2))


@misuse(errors.ValueShapeError, "is not defined for ON_READ", "total.assign_add", "Use assign")
def an_addition_to_an_on_read_sum_from_outside(w: World) -> None:
    w.total.assign_add(1.0)


@misuse(errors.ValueShapeError, "no common value", "own has a copy", "give it an aggregation")
def the_value_of_copies_without_aggregation(w: World) -> None:
    w.own.read_value()
