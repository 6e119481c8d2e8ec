"""Of a call or loop, what all replicas compute alike is known at a partial batch, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import distlab as dl
from distlab.errors import StructureError

W: Final = jnp.linspace(0.01, 0.1, 2 * 4 * 4).reshape(2, 4, 4)
FULL, PARTIAL, WITH_AN_EMPTY_ONE = 24, 8, 4

Function = Callable[[Any, Any], tuple[Any, Any]]
"""Of the weights and a replica's rows: what the weights alone decide, and what the rows do."""


@jax.custom_vjp
def with_backward(w: Any, x: Any) -> Any:
    return 2 * w, x @ w[0]


with_backward.defvjp(
    lambda w, x: (with_backward(w, x), None), lambda _, g: (2 * g[0], jnp.zeros_like(g[1]))
)


@jax.custom_jvp
def with_tangent(w: Any, x: Any) -> Any:
    return 2 * w, x @ w[0]


with_tangent.defjvps(None, None)


def scanned(w: Any, x: Any) -> Any:
    (x, twice), _ = jax.lax.scan(lambda c, one: ((c[0] @ one, c[1] + c[1]), None), (x, w), w[:1])
    return twice, x


def scanned_rows(w: Any, x: Any) -> Any:
    x, twice = jax.lax.scan(jax.checkpoint(lambda h, one: (h @ one, 2 * one)), x, w)
    return twice, x


ALIKE: Final[dict[str, Function]] = {
    "jit": jax.jit(lambda w, x: (2 * w, x @ w[0])),
    "checkpoint": jax.checkpoint(lambda w, x: (2 * w, x @ w[0])),
    "custom_vjp": with_backward,
    "custom_jvp": with_tangent,
    "scan": scanned,
    "rows of scan, by checkpoint": scanned_rows,
    "fori_loop": lambda w, x: jax.lax.fori_loop(
        0, 1, lambda _, c: (2 * c[0], c[1] @ c[0][0]), (w, x)
    ),
    "cond": lambda w, x: jax.lax.cond(
        w[0, 0, 0] > 0, lambda w, x: (2 * w, x), lambda w, x: (w, 2 * x), w, x
    ),
    "scan in jit": jax.jit(scanned),
}

APART: Final[dict[str, Function]] = {
    "jit": jax.jit(lambda w, x: (w + x.sum(), x)),
    "scan, by its shapes": lambda w, x: (
        jax.lax.scan(lambda c, _: (c + 1, None), w, jnp.zeros(len(x)))[0],
        x,
    ),
    "later than it seems": lambda w, x: (
        jax.lax.fori_loop(0, 3, lambda _, c: (c[0] + c[1], c[1] + c[2], c[2]), (w, w, x.sum()))[0],
        x,
    ),
    "while_loop, by its condition": lambda w, x: jax.lax.while_loop(
        lambda c: c[1].sum() < 9, lambda c: (2 * c[0], c[1] + 1), (w, x)
    ),
    "cond, by its predicate": lambda w, x: jax.lax.cond(
        x.sum() > 3, lambda w, x: (2 * w, x), lambda w, x: (w, x), w, x
    ),
}


def batch(strategy: dl.Strategy, examples: int) -> Any:
    rows = np.random.default_rng(0).random((examples, 4), np.float32)
    return next(iter(strategy.experimental_distribute_dataset(dl.data.Dataset.from_tensors(rows))))


def declared(functions: dict[str, Function], examples: int) -> Any:
    """Returns what a step declares as the same on all replicas, of the weights' part."""
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])

    def step(w: Any, x: Any) -> Any:
        return {name: dl.Mirrored(function(w, x)[0]) for name, function in functions.items()}

    return strategy.run(step, args=(W, batch(strategy, examples)))


def test_what_needs_no_rows_is_the_same_on_all_replicas() -> None:
    for examples in (PARTIAL, WITH_AN_EMPTY_ONE):
        for name, result in declared(ALIKE, examples).items():
            assert isinstance(result, dl.Mirrored), name
            for part in result.values:
                np.testing.assert_allclose(part, 2 * W, rtol=1e-6, err_msg=name)


def test_what_rows_or_their_number_decide_is_refused() -> None:
    for name, function in APART.items():
        if "shapes" in name:  # one program at a full batch, which all replicas run
            declared({name: function}, FULL)
        with pytest.raises(StructureError, match="it may differ between them"):
            declared({name: function}, PARTIAL)


def test_a_jitted_gradient_trains_a_model_with_its_stream() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])
    layer = nnx.Linear(4, 3, rngs=nnx.Rngs(0))
    model = nnx.Sequential(layer, nnx.Dropout(0.5, rngs=nnx.Rngs(1)))

    def loss(model: Any, x: Any) -> Any:
        return (model(x) ** 2).sum()

    @nnx.jit
    def gradients(model: Any, x: Any) -> Any:
        return nnx.grad(loss)(model, x)

    def step(model: Any, x: Any) -> None:
        sums = dl.get_replica_context().all_reduce("SUM", gradients(model, x))
        nnx.update(model, jax.tree.map(lambda p, g: p - 0.1 * g, nnx.state(model, nnx.Param), sums))

    before = layer.kernel.get_value()
    strategy.run(step, args=(model, batch(strategy, PARTIAL)))
    after = layer.kernel.get_value()
    assert np.isfinite(after).all()
    assert not np.array_equal(before, after)
