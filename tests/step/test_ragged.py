"""Steps whose replicas have different shapes return the numbers of full ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import StructureError, ValueShapeError
from distlab.values.distributed import PerReplica, stack

REPLICAS = 3


def _strategy() -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(REPLICAS)])


def _rows(strategy: dl.Strategy, sizes: list[int]) -> tuple[PerReplica, list[np.ndarray]]:
    parts = [np.arange(n * 2, dtype=np.float32).reshape(n, 2) + 10 * i for i, n in enumerate(sizes)]
    return stack(parts, strategy.mesh), parts


def _local(strategy: dl.Strategy, value: object) -> list[np.ndarray]:
    return [np.asarray(v) for v in strategy.experimental_local_results(value)]


@pytest.mark.parametrize("eagerly", [False, True])
def test_components_may_differ_in_rank_and_be_empty(eagerly: bool) -> None:
    s, parts = _strategy(), [np.ones((1, 2)), np.full((2, 2), 3.0), np.zeros(0)]
    x = s.experimental_distribute_values_from_function(
        lambda c: parts[c.replica_id_in_sync_group].astype(np.float32)
    )
    dl.run_functions_eagerly(eagerly)
    try:
        doubled, total = s.run(
            lambda v: (v * 2, dl.get_replica_context().all_reduce("SUM", v.sum())), args=(x,)
        )
    finally:
        dl.run_functions_eagerly(False)
    for component, part in zip(_local(s, doubled), parts, strict=True):
        np.testing.assert_array_equal(component, part * 2)
    assert [float(t) for t in total.values] == [14.0] * REPLICAS
    with pytest.raises(ValueShapeError, match=r"their shapes differ: \[1, 2\], \[2, 2\], \[0\]"):
        s.reduce("SUM", doubled, axis=None)


def test_ragged_gradients_equal_those_of_the_whole_batch() -> None:
    s = _strategy()
    x, parts = _rows(s, [3, 2, 0])
    w = np.array([0.5, -1.0], np.float32)

    def fn(v: jax.Array, w: jax.Array) -> jax.Array:
        grads = jax.grad(lambda p: jnp.sum(jnp.tanh(v @ p)))(w)
        reduced: jax.Array = dl.get_replica_context().all_reduce("SUM", grads)
        return reduced

    whole = jax.grad(lambda p: jnp.sum(jnp.tanh(np.concatenate(parts) @ p)))(jnp.asarray(w))
    for grads in _local(s, s.run(fn, args=(x, w))):
        np.testing.assert_allclose(grads, whole, rtol=1e-5)


def test_collectives_inside_jit_scan_and_remat_are_found() -> None:
    s = _strategy()
    x, parts = _rows(s, [2, 2, 1])

    def fn(v: jax.Array) -> jax.Array:
        context = dl.get_replica_context()
        inner = jax.jit(lambda u: context.all_reduce("SUM", u.sum()))
        remat = jax.checkpoint(lambda u: context.all_reduce("SUM", jnp.sin(u).sum()))

        def body(carry: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
            return carry + context.all_reduce("SUM", v.sum() * k), carry

        carry, _ = jax.lax.scan(body, inner(v), jnp.arange(3.0))
        return carry + remat(v)

    total = sum(float(p.sum()) for p in parts)
    expected = total + 3 * total + sum(float(np.sin(p).sum()) for p in parts)
    for value in _local(s, s.run(fn, args=(x,))):
        np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_a_collective_in_a_ragged_while_loop_is_refused() -> None:
    s = _strategy()
    x, _ = _rows(s, [2, 2, 1])

    def fn(v: jax.Array) -> jax.Array:
        def body(carry: jax.Array) -> jax.Array:
            total: jax.Array = dl.get_replica_context().all_reduce("SUM", carry + 1)
            return total

        return jax.lax.while_loop(lambda c: c < 10, body, v.sum())

    with pytest.raises(StructureError, match="drop_remainder=True"):
        s.run(fn, args=(x,))


def _normalised(v: jax.Array) -> jax.Array:
    context = dl.get_replica_context()
    count = context.all_reduce("SUM", jnp.float32(v.shape[0]))
    centred = v - context.all_reduce("SUM", v.sum(0)) / count
    variance = context.all_reduce("SUM", (centred**2).sum(0)) / count
    normal: jax.Array = centred / jnp.sqrt(variance)
    return normal


def test_ragged_statistics_are_those_of_the_whole_batch() -> None:
    s = _strategy()
    x, parts = _rows(s, [3, 1, 0])
    whole = np.concatenate(parts)
    expected = (whole - whole.mean(0)) / whole.std(0)
    for run in (s.run, jax.jit(lambda fn, args: s.run(fn, args=args), static_argnums=0)):
        result = run(_normalised, args=(x,))
        np.testing.assert_allclose(np.concatenate(_local(s, result)), expected, rtol=1e-4)


def test_gradients_are_taken_through_a_ragged_run() -> None:
    s = _strategy()
    x, parts = _rows(s, [3, 2, 0])

    def loss(w: jax.Array) -> jax.Array:
        def fn(v: jax.Array, w: jax.Array) -> jax.Array:
            return jnp.sum(jnp.tanh(v @ w))

        total: jax.Array = s.run(fn, args=(x, w)).stacked.sum()
        return total

    w = jnp.array([0.05, -0.1])
    whole = jax.grad(lambda w: jnp.sum(jnp.tanh(np.concatenate(parts) @ w)))(w)
    np.testing.assert_allclose(jax.grad(loss)(w), whole, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(w), whole, rtol=1e-5)


@jax.custom_vjp
def _plus_id(v: jax.Array) -> jax.Array:
    return v + dl.get_replica_context().replica_id_in_sync_group


_plus_id.defvjp(lambda v: (_plus_id(v), None), lambda _, g: (g,))


@pytest.mark.parametrize("where", ["scan", "cond", "jit", "a function with a gradient"])
def test_replicas_know_their_numbers_inside_of_other_functions(where: str) -> None:
    s = _strategy()
    x, parts = _rows(s, [2, 1, 2])

    def number() -> jax.Array:
        found: jax.Array = dl.get_replica_context().replica_id_in_sync_group
        return found

    def fn(v: jax.Array) -> jax.Array:
        match where:
            case "scan":
                return jax.lax.scan(lambda c, _: (c + number(), None), v, length=1)[0]
            case "cond":
                return jax.lax.cond(v.shape[0] > 0, lambda u: u + number(), lambda u: u, v)
            case "jit":
                return jax.jit(lambda u: u + number())(v)
        return _plus_id(v)

    for replica, value in enumerate(_local(s, s.run(fn, args=(x,)))):
        np.testing.assert_array_equal(value, parts[replica] + replica)


def test_many_ragged_steps_in_flight_end() -> None:
    s = dl.MirroredStrategy([f"CPU:{i}" for i in range(8)])
    x = stack([np.ones((n % 3, 2), np.float32) for n in range(8)], s.mesh)
    same = stack([np.ones((2, 2), np.float32)] * 8, s.mesh)
    for _ in range(60):
        ragged, equal = s.run(_normalised, args=(x,)), s.run(_normalised, args=(same,))
    jax.block_until_ready((ragged, equal))


def test_arrays_of_other_devices_are_moved() -> None:
    s = _strategy()
    x, parts = _rows(s, [2, 1, 0])
    with s.scope():
        total = dl.Variable(1.0, aggregation=dl.VariableAggregation.SUM)
    other = jax.device_put(jnp.float32(2), jax.devices()[5])
    for factor in (2.0, other, other + 1):
        s.run(lambda v, f: total.assign_add(v.sum() * f), args=(x, factor))
    assert float(total) == pytest.approx(1 + 7 * sum(float(p.sum()) for p in parts))


def test_an_error_names_the_replica_without_examples() -> None:
    s = _strategy()
    x, _ = _rows(s, [2, 1, 0])
    with pytest.raises(ZeroDivisionError) as raised:
        s.run(lambda v: v.reshape(v.shape[0], -1).sum(), args=(x,))
    note = raised.value.__notes__[-1]
    assert note.startswith("Replica 2 receives v: float32[0, 2]. A replica without examples runs")


def test_texts_that_differ_between_replicas_are_refused() -> None:
    s = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    (batch,) = s.experimental_distribute_dataset(dl.data.Dataset.range(3).batch(3))
    with pytest.raises(StructureError, match="one returns '2 rows' and another '1 rows'"):
        s.run(lambda x: f"{x.shape[0]} rows", (batch,))


@pytest.mark.parametrize("eagerly", [False, True], ids=["compiled", "eagerly"])
def test_keys_of_rows_are_returned_and_passed_on(*, eagerly: bool) -> None:
    s = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    (batch,) = s.experimental_distribute_dataset(dl.data.Dataset.range(3).batch(3))
    options = dl.RunOptions(run_eagerly=eagerly)
    key = jax.random.key(0)
    keys = s.run(lambda x: jax.random.split(key, x.shape[0]), (batch,), options=options)
    data = [jax.random.key_data(value).tolist() for value in keys.values]
    assert data == [jax.random.key_data(jax.random.split(key, n)).tolist() for n in (2, 1)]
    drawn = s.run(jax.vmap(jax.random.uniform), (keys,), options=options)
    expected = [[float(jax.random.uniform(k)) for k in jax.random.split(key, n)] for n in (2, 1)]
    assert [value.tolist() for value in drawn.values] == [pytest.approx(e) for e in expected]
