"""JAX's transformations around `run`, of a value that its function uses from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl

DEVICES = ["CPU:0", "CPU:1", "CPU:2"]
ROWS = np.array([[1, 2], [3, 4], [5, 6]], np.float32)

TRANSFORMED: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "grad": lambda f: jax.grad(f)(3.0),
    "jvp": lambda f: jax.jvp(f, (3.0,), (1.0,)),
    "vmap": lambda f: jax.vmap(f)(jnp.arange(4.0)),
    "jit of grad": lambda f: jax.jit(jax.grad(f))(3.0),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::distlab.errors.RecompilationWarning")
def test_the_result_is_that_of_the_function_alone() -> None:
    strategy = dl.MirroredStrategy(DEVICES)
    parts = strategy.experimental_distribute_values_from_function(
        lambda context: jnp.asarray(ROWS[context.replica_id_in_sync_group])
    )

    def distributed(w: Any) -> Any:
        losses = strategy.run(lambda part: (part * w * w).sum(), args=(parts,))
        return strategy.reduce("SUM", losses, axis=None)

    def plain(w: Any) -> Any:
        return (ROWS * w * w).sum()

    before = distributed(3.0)
    for transformed in TRANSFORMED.values():
        found, wanted = transformed(distributed), transformed(plain)
        for mine, theirs in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
            np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-6)
    assert distributed(3.0) == before == plain(3.0)
    assert distributed(4.0) == plain(4.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::distlab.errors.RecompilationWarning")
@pytest.mark.parametrize(
    ("sizes", "within"),
    [((2, 2, 2), False), ((3, 3, 1), True)],
    ids=["equal, reduced after", "ragged, all_reduce within"],
)
def test_weights_that_an_earlier_gradient_placed_are_used(
    sizes: tuple[int, ...], within: bool
) -> None:
    strategy = dl.MirroredStrategy(DEVICES)
    ends = np.cumsum(sizes)
    rows = np.arange(ends[-1], dtype=np.float32)
    batch = strategy.experimental_distribute_values_from_function(
        lambda context: np.split(rows, ends)[context.replica_id_in_sync_group]
    )

    def step(part: Any, w: Any) -> Any:
        loss = jnp.square(part * w["a"] - w["b"]).sum()
        return dl.get_replica_context().all_reduce("SUM", loss) if within else loss

    def distributed(w: Any) -> Any:
        losses = strategy.run(lambda part: step(part, w), args=(batch,))
        return strategy.reduce("MEAN" if within else "SUM", losses, axis=None)

    def plain(w: Any) -> Any:
        return jnp.square(rows * w["a"] - w["b"]).sum()

    def trained(loss: Callable[[Any], Any]) -> Any:
        w = {"a": jnp.float32(0.5), "b": jnp.arange(2.0).sum()}
        for _ in range(3):
            value, slopes = jax.value_and_grad(loss)(w)
            w = jax.tree.map(lambda own, slope: own - 0.002 * slope, w, slopes)
        return value, w, jax.vmap(loss)(jax.tree.map(lambda own: own + jnp.arange(3.0), w))

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5),
        trained(distributed),
        trained(plain),
    )


def test_a_gradient_of_an_argument_compiles_its_step_once() -> None:
    strategy = dl.MirroredStrategy(DEVICES)

    def step(w: Any) -> Any:
        return jnp.square(w * jnp.arange(3.0)).sum()

    def loss(w: Any) -> Any:
        return strategy.reduce("MEAN", strategy.run(step, args=(w,)), axis=None)

    compiled: list[str] = []

    def note(event: str, duration_secs: float, **_: Any) -> None:
        del duration_secs
        if "backend_compile" in event:
            compiled.append(event)

    w = jnp.float32(1.0)
    found, counts = [], []
    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        for _ in range(4):
            slope = jax.grad(loss)(w)
            found.append(float(slope))
            w = w - 0.01 * slope
            counts.append(len(compiled))
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    np.testing.assert_allclose(found, [10 * 0.9**n for n in range(4)], rtol=1e-5)
    assert counts[0] > 0
    assert counts[1:] == [counts[1]] * 3  # the second has its weight on all devices
