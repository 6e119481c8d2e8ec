"""Collectives that only some replicas would reach are refused before anything runs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import StructureError

REPLICAS = 4
DEVICES = [f"cpu:{n}" for n in range(REPLICAS)]


def number() -> jax.Array:
    context = dl.get_replica_context()
    return jnp.asarray(context.replica_id_in_sync_group)


def total(value: jax.Array) -> jax.Array:
    summed: jax.Array = dl.get_replica_context().all_reduce("SUM", value)
    return summed


def in_cond() -> jax.Array:
    return jax.lax.cond(number() > 1, total, lambda x: x, jnp.float32(1))


def in_switch() -> jax.Array:
    return jax.lax.switch(number(), [lambda x: x, total, total, total], jnp.float32(1))


def in_while_that_diverges() -> jax.Array:
    return jax.lax.while_loop(lambda x: x < number(), lambda x: total(x) + 1, jnp.float32(0))


def in_cond_of_a_scan_whose_carry_diverges() -> jax.Array:
    def body(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
        carry = jax.lax.cond(carry > 2, total, lambda x: x, carry)
        return carry + number(), None

    return jax.lax.scan(body, jnp.float32(0), length=3)[0]


def in_jit_in_cond() -> jax.Array:
    return jax.lax.cond(number() > 1, jax.jit(total), lambda x: x, jnp.float32(1))


def test_choices_that_differ_between_replicas_hold_no_collective() -> None:
    for fn, where in [
        (in_cond, "cond"),
        (in_switch, "cond"),
        (in_while_that_diverges, "while_loop"),
        (in_cond_of_a_scan_whose_carry_diverges, "cond"),
        (in_jit_in_cond, "cond"),
    ]:
        strategy = dl.MirroredStrategy(DEVICES)
        with strategy.scope():
            variable = dl.Variable(1.0)

        def step(variable: dl.Variable = variable, fn: Any = fn) -> jax.Array:
            variable.assign_add(1.0)
            return fn()

        with pytest.raises(StructureError, match=rf"psum is inside jax\.lax\.{where}.*outside"):
            strategy.run(step)
        assert float(variable.value()) == 1.0


def test_choices_equal_on_all_replicas_may_hold_collectives() -> None:
    strategy = dl.MirroredStrategy(DEVICES)

    def step() -> jax.Array:
        together = total(number().astype(jnp.float32))  # 6 on every replica
        doubled = jax.lax.cond(together > 3, total, lambda x: x, together)
        return jax.lax.while_loop(lambda x: x < 50, total, doubled)

    values = strategy.experimental_local_results(strategy.run(step))
    np.testing.assert_array_equal(np.stack(values), [6.0 * REPLICAS * REPLICAS] * REPLICAS)
