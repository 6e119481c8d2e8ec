"""JAX's collectives by the axis's name work where functions run as Python, as in compiled ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import distlab as dl
from distlab.errors import ContextError, ValueShapeError
from distlab.values.distributed import stack

REPLICAS = 4
AXIS = "replica"
EAGERLY = dl.RunOptions(run_eagerly=True)


@pytest.fixture
def strategy() -> dl.Strategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(REPLICAS)])


def parts(strategy: dl.Strategy) -> Any:
    """Two numbers for each replica, all different."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: jnp.arange(2.0) + 2 * context.replica_id_in_sync_group
    )


def number() -> Any:
    return dl.get_replica_context().replica_id_in_sync_group


def total(x: Any) -> Any:
    context = dl.get_replica_context()
    return context.all_reduce("SUM", x) + context.all_reduce("MEAN", x)


def shifted(x: Any) -> Any:
    size = lax.axis_size(AXIS)
    return lax.ppermute(x, AXIS, [(n, (n + 1) % size) for n in range(size)])


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "a sum": lambda x: lax.psum(x, AXIS),
    "a sum of a nest": lambda x: lax.psum({"x": x, "n": (x.sum(), 1)}, AXIS),
    "a sum of constants": lambda x: lax.psum(jnp.ones(3), AXIS) + 0 * x.sum(),
    "a sum of NumPy's numbers": lambda x: lax.psum(np.ones(3, np.float32), AXIS) + 0 * x.sum(),
    "a sum within groups": lambda x: lax.psum(
        x, AXIS, axis_index_groups=[[0, 1], [2, 3]] if lax.axis_size(AXIS) == REPLICAS else None
    ),
    "the largest and the smallest": lambda x: (lax.pmax(x, AXIS), lax.pmin(x.sum(), AXIS)),
    "a gather": lambda x: (lax.all_gather(x, AXIS), lax.all_gather(x, AXIS, tiled=True)),
    "a permutation": shifted,
    "a scattered sum": lambda x: lax.psum_scatter(jnp.arange(8.0) * x[1], AXIS, tiled=True),
    "all to all": lambda x: lax.all_to_all(
        jnp.arange(2.0 * lax.axis_size(AXIS)).reshape(-1, 2) * x[1], AXIS, 0, 0
    ),
    "the number and the size": lambda x: x * lax.axis_index(AXIS) + lax.axis_size(AXIS),
    "a gradient": lambda x: jax.grad(lambda w: lax.pmean((w * x).sum(), AXIS))(2.0),
    "a gradient through two": jax.value_and_grad(
        lambda x: lax.psum(jax.nn.relu(lax.pmean(x**2, AXIS)).sum(), AXIS)
    ),
    "a compiled gradient": lambda x: jax.jit(
        jax.grad(lambda w, x: lax.pmean(jnp.tanh(w * x).sum(), AXIS))
    )(0.1, x),
    "jit": jax.jit(lambda x: lax.psum(x, AXIS) * lax.axis_index(AXIS)),
    "jit of the number": jax.jit(lambda x: x + lax.axis_index(AXIS)),
    "jit of the context": jax.jit(lambda x: total(x * number())),
    "a scan": lambda x: lax.scan(lambda c, y: (c + lax.pmean(y, AXIS), c), 0.0, x),
    "a branch": lambda x: lax.cond(x.ndim > 0, lambda x: lax.psum(x, AXIS), lambda x: x, x),
    "a while loop": lambda x: lax.while_loop(
        lambda c: c[1] < 3, lambda c: (lax.pmean(c[0], AXIS) + 1, c[1] + 1), (x, 0)
    ),
    "vmap": jax.vmap(lambda y: lax.psum(y, AXIS)),
}


def every_program(x: Any) -> dict[str, Any]:
    return {name: program(x) for name, program in PROGRAMS.items()}


@pytest.mark.slow
def test_eager_functions_give_what_compiled_ones_give(strategy: dl.Strategy) -> None:
    x = parts(strategy)
    compiled, eager = (
        strategy.run(every_program, args=(x,), options=options) for options in (None, EAGERLY)
    )
    for replica in range(REPLICAS):
        assert_same(of_replica(eager, replica), of_replica(compiled, replica))


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name in PROGRAMS:
        for mine, theirs in zip(*map(jax.tree.leaves, (found[name], wanted[name])), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6, err_msg=name)


def of_replica(result: Any, replica: int) -> Any:
    return jax.tree.map(
        lambda v: np.asarray(v.values[replica] if isinstance(v, dl.DistributedValues) else v),
        result,
        is_leaf=lambda v: isinstance(v, dl.DistributedValues),
    )


def test_the_default_strategys_axis_has_the_size_one() -> None:
    x = jnp.arange(2.0)
    for name in ("a sum", "a gather", "the number and the size", "jit of the context"):
        wanted = dl.OneDeviceStrategy("CPU:0").run(PROGRAMS[name], args=(x,))
        found = dl.get_strategy().run(PROGRAMS[name], args=(x,))
        jax.tree.map(np.testing.assert_allclose, found, wanted)


@jax.jit
def moved(rows: jax.Array) -> jax.Array:
    return lax.scan(lambda c, _: (c * 2 + number(), None), rows, length=2)[0]


def test_a_jitted_function_with_the_number_takes_any_shapes(
    strategy: dl.Strategy,
) -> None:
    """Each replica computes by itself, with its number instead of the first one's."""
    rows = stack([jnp.ones((n, 2)) for n in (2, 0, 1, 1)], strategy.mesh)
    for _ in range(2):
        found = strategy.run(moved, args=(rows,), options=EAGERLY)
        assert [part.tolist() for part in found.values] == [
            [[4, 4]] * 2,
            [],
            [[10, 10]],
            [[13, 13]],
        ]


def with_constant(x: Any, factor: int) -> Any:
    return jax.jit(lambda y: lax.psum(y * factor, AXIS))(x)


DIFFERENT: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "a number in a compiled function": (
        lambda x: with_constant(x, number()),
        ContextError,
        "jax.jit of .* not the same on all replicas",
    ),
    "a function that prints": (
        jax.jit(lambda y: (jax.debug.print("{}", y), lax.psum(y, AXIS))[1]),
        ContextError,
        "prints or calls Python",
    ),
    "shapes": (
        lambda _: lax.psum(jnp.ones(number() + 1), AXIS),
        ValueShapeError,
        r"same shapes on all replicas, got float32\[1\]",
    ),
    "a collective of some replicas": (
        lambda x: lax.psum(x, AXIS) if number() else x,
        ContextError,
        "under an `if` that only some enter",
    ),
}


def test_what_differs_between_eager_replicas_is_refused(strategy: dl.Strategy) -> None:
    for function, error, text in DIFFERENT.values():
        with pytest.raises(error, match=text):
            strategy.run(function, args=(parts(strategy),), options=EAGERLY)


def test_outside_of_run_the_axis_has_no_name(strategy: dl.Strategy) -> None:
    strategy.run(lambda x: lax.psum(x, AXIS), args=(parts(strategy),), options=EAGERLY)
    with pytest.raises(NameError, match="unbound axis name"):
        lax.psum(jnp.ones(3), AXIS)
    with pytest.raises(NameError, match="unbound axis name: rows"):
        strategy.run(lambda x: lax.psum(x, "rows"), args=(parts(strategy),), options=EAGERLY)


def test_a_mapped_function_of_ones_own_is_left_to_jax(strategy: dl.Strategy) -> None:
    strategy.run(lambda x: lax.psum(x, AXIS), args=(parts(strategy),), options=EAGERLY)
    total = jax.vmap(lambda x: lax.psum(x, AXIS), axis_name=AXIS)(jnp.arange(3.0))
    assert total.tolist() == [3.0, 3.0, 3.0]
    ones = jax.vmap(lambda x: x + lax.psum(jnp.ones(()), AXIS), axis_name=AXIS)(jnp.zeros(3))
    assert ones.tolist() == [3.0, 3.0, 3.0]
