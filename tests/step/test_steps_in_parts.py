"""Values assigned to divided variables are the mirrored step's, whatever operations made them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import distlab as dl

SHAPE: Final = (8, 4)


class Given(NamedTuple):
    """A summed gradient, the variable's value, and the replica's examples."""

    g: jax.Array
    w: jax.Array
    x: jax.Array


@jax.custom_jvp
def softened(x: jax.Array) -> jax.Array:
    return jnp.tanh(x) * 2


softened.defjvp(lambda primals, tangents: (softened(*primals), tangents[0]))


@jax.custom_vjp
def same(x: jax.Array) -> jax.Array:
    return x + 1


same.defvjp(lambda x: (x + 1, None), lambda _, g: (g,))


def looped(g: jax.Array) -> jax.Array:
    return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 0.5), (0, g))[1]


def scanned(g: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda c, row: (c + row, c * 2), w[0], g)[1]


def accumulated(s: Given) -> jax.Array:
    """Adds up a gradient in the carry of a loop, clipped by its norm, beside numbers alone."""

    def body(carry: tuple[Any, ...], row: jax.Array) -> tuple[tuple[Any, ...], jax.Array]:
        total, count, own = carry
        total = total * 0.5 + s.g / jnp.linalg.norm(s.g) * row
        return (total, count + 1.0, own + s.x.mean()), jnp.sum(total)

    start = (s.w, 0.0, jnp.zeros(()))
    (total, count, own), sums = jax.lax.scan(body, start, jnp.arange(3.0), unroll=2)
    mean = jax.lax.pmean(own, "replica")
    return total * count + sums[1] + mean


def drawn_back(s: Given) -> jax.Array:
    """Chooses by an index of all replicas, and clips within a branch."""
    return jax.lax.switch(
        (s.g[0, 0] > 0).astype(jnp.int32) + 1,
        [lambda g, _: g, lambda g, w: w - g / jnp.linalg.norm(g), lambda g, w: w * jnp.sum(g)],
        s.g,
        s.w,
    )


def own_branch(s: Given) -> jax.Array:
    """Chooses by each replica's own examples, and sums what was chosen."""
    chosen = jax.lax.cond(s.x.mean() > 0, lambda: s.g * 2, lambda: s.w)
    return jax.lax.psum(chosen, "replica")


def own_loop(s: Given) -> jax.Array:
    """Carries what differs between replicas, and sums it."""
    carried = jax.lax.scan(lambda c, row: (c + row * s.x[0], None), s.w, jnp.arange(2.0))[0]
    return jax.lax.psum(carried, "replica") / 9


def noisy(g: jax.Array) -> jax.Array:
    return g + jax.random.normal(jax.random.key(3), g.shape)


OF_GRADIENTS: Final[dict[str, Callable[[Given], Any]]] = {
    "its mean": lambda s: s.w - 0.1 * s.g / 4,
    "a power": lambda s: s.w * jnp.abs(s.g) ** 0.5 + jnp.square(s.g) - s.g**3,
    "a choice by element": lambda s: jnp.where(s.g > 0, jnp.clip(s.g, -1, 1), s.w),
    "a choice by number": lambda s: jnp.where(jnp.all(jnp.isfinite(s.g)), s.w - s.g, s.w),
    "none that is large": lambda s: jnp.where(jnp.any(s.g > 1e9), s.w, -s.g),
    "its norm": lambda s: s.g * jnp.minimum(1.0, 1.0 / jnp.linalg.norm(s.g)),
    "a product of two": lambda s: jnp.tanh(s.g * jnp.vdot(s.g, s.w) / 99 + jnp.vdot(s.w, s.g) / 99),
    "its largest": lambda s: s.g / jnp.max(jnp.abs(s.g)) + jnp.min(s.g),
    "norms of rows": lambda s: s.g / jnp.linalg.norm(s.g, axis=1, keepdims=True),
    "norms of columns": lambda s: s.g / jnp.linalg.norm(s.g, axis=0),
    "factors": lambda s: jnp.outer(jnp.mean(s.g * s.g, 1), jnp.mean(s.g * s.g, 0)) * s.w,
    "its sum, and the sum's change": lambda s: s.w - s.g + 0.1 * jnp.sum(s.w - s.g),
    "all of its rows": lambda s: s.g + jnp.cumsum(s.g, 0) + jnp.sort(s.g, 0),
    "another shape": lambda s: (s.g.reshape(32) * 2).reshape(4, 8).reshape(8, 4),
    "a product of matrices": lambda s: s.g @ (s.g.T @ s.w) / 9,
    "a function with a tangent": lambda s: softened(s.g) + jax.nn.relu(s.g),
    "a function with a cotangent": lambda s: same(s.g) * s.w,
    "a function inside of jit": lambda s: jax.jit(lambda a: a * 2 + jnp.ones(4))(s.g),
    "a function computed again": lambda s: jax.checkpoint(jnp.sin)(s.g) * s.w,
    "its own gradient": lambda s: jax.grad(lambda a: jnp.sum(jax.checkpoint(jnp.sin)(a) * s.g))(
        s.w
    ),
    "a while loop": lambda s: looped(s.g),
    "a scan": lambda s: scanned(s.g, s.w),
    "a branch": lambda s: jax.lax.cond(s.g[0, 0] > 0, lambda: s.g * 2, lambda: s.w),
    "an accumulated gradient": accumulated,
    "a branch of three": drawn_back,
    "a branch of its own": own_branch,
    "a loop of its own": own_loop,
    "random numbers": lambda s: noisy(s.g),
    "half precision": lambda s: (s.g.astype(jnp.bfloat16) * 2).astype(jnp.float32),
    "whole numbers": lambda s: jnp.round(s.g).astype(jnp.int32) // 3 % 5 * 1.0,
    "rows from a table": lambda s: s.w.at[jnp.array([1, 1, 5])].add(s.g[:3]),
    "numbers alone": lambda _: jnp.full(SHAPE, 3.0) + jnp.arange(4.0),
    "a scalar": lambda s: jnp.broadcast_to(jnp.sum(s.g), SHAPE),
    "another variable": lambda s: s.w,
    "the largest of all replicas": lambda s: jax.lax.pmax(s.x[0] * s.w, "replica"),
    "a sum of what was gathered": lambda s: jnp.sum(jax.lax.all_gather(s.x, "replica"), 0) * s.w,
}


def stepped(*, shard: int | bool) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns what each variable holds after two steps."""
    strategy = dl.MirroredStrategy([f"CPU:{n}" for n in range(4)], shard_variables=shard)
    rng = np.random.default_rng(0)
    with strategy.scope():
        made = {n: dl.Variable(rng.normal(size=SHAPE).astype("f"), name=n) for n in OF_GRADIENTS}

    def step(x: jax.Array) -> tuple[Any, jax.Array]:
        context = dl.get_replica_context()
        own = jnp.zeros(())
        for name, variable in made.items():
            w = variable.value()
            g = context.all_reduce("SUM", x[:8, :1] * jnp.cos(w) + x[0, 1])
            own += jnp.sum(g * x.mean())
            variable.assign(OF_GRADIENTS[name](Given(g, w, x)))
        return sum(jnp.sum(v.value()) for v in made.values()), own

    x = rng.normal(size=(32, 4)).astype("f")
    batch = next(iter(strategy.experimental_distribute_dataset([x])))
    results = [strategy.run(step, args=(batch,)) for _ in range(2)]
    each = [np.stack(part.values) for result in results for part in result]
    return {name: np.asarray(variable) for name, variable in made.items()}, np.stack(each)


def test_any_operation_gives_the_mirrored_numbers() -> None:
    (expected, results), (found, found_results) = stepped(shard=False), stepped(shard=16)
    wrong = [n for n in expected if not np.allclose(found[n], expected[n], 1e-5, 1e-6)]
    assert wrong == []
    np.testing.assert_allclose(found_results, results, rtol=1e-5)
