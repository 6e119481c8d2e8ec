"""JAX's transformations around `run`, of a value that its function uses from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl

STRATEGIES: dict[str, list[str]] = {"three": ["CPU:0", "CPU:1", "CPU:2"], "one": ["CPU:0"]}
X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)

TRANSFORMED: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "grad": lambda f: jax.grad(f)(3.0),
    "value_and_grad": lambda f: jax.value_and_grad(f)(3.0),
    "jvp": lambda f: jax.jvp(f, (3.0,), (1.0,)),
    "vjp": lambda f: jax.vjp(f, 3.0)[1](jnp.float32(1.0)),
    "vmap": lambda f: jax.vmap(f)(jnp.arange(4.0)),
    "hessian": lambda f: jax.hessian(f)(3.0),
    "jit of grad": lambda f: jax.jit(jax.grad(f))(3.0),
    "grad of checkpoint": lambda f: jax.grad(jax.checkpoint(f))(3.0),
}


@pytest.mark.parametrize("replicas", STRATEGIES)
@pytest.mark.parametrize("name", TRANSFORMED)
def test_the_result_is_that_of_the_same_function_without_a_strategy(
    name: str, replicas: str
) -> None:
    strategy = dl.MirroredStrategy(STRATEGIES[replicas])
    rows = X[: strategy.num_replicas_in_sync]
    parts = strategy.experimental_distribute_values_from_function(
        lambda context: jnp.asarray(rows[context.replica_id_in_sync_group])
    )

    def distributed(w: Any) -> Any:
        losses = strategy.run(lambda part: (part * w * w).sum(), args=(parts,))
        return strategy.reduce("SUM", losses, axis=None)

    def plain(w: Any) -> Any:
        return (rows * w * w).sum()

    before = distributed(3.0)
    found = jax.tree.map(np.asarray, TRANSFORMED[name](distributed))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, TRANSFORMED[name](plain)
    )
    assert distributed(3.0) == before == plain(3.0)
    assert distributed(4.0) == plain(4.0)
