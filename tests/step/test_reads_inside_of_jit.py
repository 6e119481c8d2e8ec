"""Functions that JAX keeps the traces of, such as `jax.jit`, read what a variable is now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl

EAGERLY = dl.RunOptions(run_eagerly=True)


def _jit(weight: dl.Variable) -> Callable[[Any], Any]:
    return jax.jit(lambda x: x * weight)


def _checkpoint(weight: dl.Variable) -> Callable[[Any], Any]:
    return jax.checkpoint(lambda x: x * weight)


def _scan(weight: dl.Variable) -> Callable[[Any], Any]:
    def body(carry: Any, row: Any) -> Any:
        return carry + row * weight, None

    return lambda x: jax.lax.scan(body, jnp.zeros_like(x), x[None])[0]


def _while(weight: dl.Variable) -> Callable[[Any], Any]:
    def again(state: Any) -> Any:
        return state[0] < 1

    def body(state: Any) -> Any:
        return state[0] + 1, state[1] * weight

    return lambda x: jax.lax.while_loop(again, body, (0, x))[1]


def _cond(weight: dl.Variable) -> Callable[[Any], Any]:
    def product(x: Any) -> Any:
        return x * weight

    return lambda x: jax.lax.cond(x.sum() > -1, product, jnp.zeros_like, x)


def _gradient_of_jit(weight: dl.Variable) -> Callable[[Any], Any]:
    return jax.grad(jax.jit(lambda x: (x * weight).sum()))


def _jit_of_vmap(weight: dl.Variable) -> Callable[[Any], Any]:
    return jax.vmap(jax.jit(lambda x: x * weight))


WAYS = [_jit, _checkpoint, _scan, _while, _cond, _jit_of_vmap]
EAGER_WAYS = [_jit, _scan]


def _totals(weight: dl.Variable, *ways: Callable[[dl.Variable], Any]) -> Callable[[Any], Any]:
    times = [way(weight) for way in ways]
    return lambda x: [each(x).sum() for each in times]


@pytest.fixture
def strategy() -> dl.Strategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def _ones(strategy: dl.Strategy, rows: int) -> Any:
    data = dl.data.Dataset.from_tensor_slices(np.ones(rows, np.float32)).batch(rows)
    return next(iter(strategy.experimental_distribute_dataset(data)))


@pytest.mark.parametrize("options", [dl.RunOptions(), EAGERLY], ids=["compiled", "eagerly"])
def test_a_step_reads_before_and_after_it_assigns(strategy: dl.Strategy, options: Any) -> None:
    with strategy.scope():
        weight = dl.Variable(1.0)
    totals = _totals(weight, *(EAGER_WAYS if options is EAGERLY else WAYS))

    def step(x: Any) -> Any:
        before = totals(x)
        weight.assign_add(1.0)
        return before, totals(x)

    for number in (1.0, 2.0, 3.0):
        for before, after in zip(
            *strategy.run(step, (_ones(strategy, 4),), options=options), strict=True
        ):
            assert [float(v) for v in before.values] == [2 * number] * 2
            assert [float(v) for v in after.values] == [2 * number + 2] * 2


@pytest.mark.slow
@pytest.mark.parametrize("options", [dl.RunOptions(), EAGERLY], ids=["compiled", "eagerly"])
def test_steps_of_several_shapes_share_a_traced_function(
    strategy: dl.Strategy, options: Any
) -> None:
    with strategy.scope():
        weight = dl.Variable(1.0)
    ways = EAGER_WAYS if options is EAGERLY else WAYS
    evaluate = _totals(weight, *ways, _gradient_of_jit)

    def train(x: Any) -> Any:
        result = evaluate(x)
        weight.assign_add(1.0)
        return result

    def total(step: Callable[..., Any], rows: int) -> set[float]:
        losses = strategy.run(step, (_ones(strategy, rows),), options=options)
        return {float(strategy.reduce("SUM", loss, axis=None)) for loss in losses}

    assert [total(train, rows) for rows in (4, 4, 3)] == [{4.0}, {8.0}, {9.0}]
    assert [total(evaluate, rows) for rows in (4, 3)] == [{16.0}, {12.0}]


def test_a_loop_over_steps_reads_what_each_of_them_assigned(strategy: dl.Strategy) -> None:
    with strategy.scope():
        weight = dl.Variable(1.0)
    times = jax.jit(lambda x: x * weight)

    def step(_: None, x: Any) -> Any:
        result = times(x)
        weight.assign_add(1.0)
        return None, (result, times(x))

    def steps(rows: Any) -> Any:
        _, results = dl.scan(step, None, rows)
        return *results, times(1.0)

    before, after, last = strategy.run(steps, (jnp.ones(3),))
    assert before.values[1].tolist() == [1.0, 2.0, 3.0]
    assert after.values[1].tolist() == [2.0, 3.0, 4.0]
    assert float(last.values[0]) == 4.0


def test_each_replica_reads_its_own_copy_eagerly(strategy: dl.Strategy) -> None:
    with strategy.scope():
        seen = dl.Variable(
            0.0,
            synchronization=dl.VariableSynchronization.ON_READ,
            aggregation=dl.VariableAggregation.SUM,
        )
    read = jax.jit(lambda x: x + seen)

    def step() -> Any:
        seen.assign(1.0 + dl.get_replica_context().replica_id_in_sync_group)
        return read(0.0)

    for _ in range(2):
        assert [float(v) for v in strategy.run(step, options=EAGERLY).values] == [1.0, 2.0]


def test_an_update_function_reads_what_the_last_one_assigned(strategy: dl.Strategy) -> None:
    with strategy.scope():
        weight = dl.Variable(1.0)
    twice = jax.jit(lambda x: x + weight)

    for value in (2.0, 4.0, 8.0):
        strategy.extended.update(weight, lambda copy: copy.assign(twice(copy.value())))
        assert float(weight) == value


def test_a_function_exported_again_holds_the_present_value(strategy: dl.Strategy) -> None:
    with strategy.scope():
        weight = dl.Variable(2.0)
    times = jax.jit(lambda x: x * weight)

    for value in (2.0, 5.0):
        weight.assign(value)
        exported = dl.export(times, jax.ShapeDtypeStruct((), np.float32))
        assert float(exported(3.0)) == 3 * value


def _differs(x: Any) -> Any:
    def total() -> Any:
        return dl.get_replica_context().all_reduce("SUM", x.sum())

    return jax.lax.cond(x[0] > 0, total, x.sum)


def _differs_in_a_loop(x: Any) -> Any:
    return jax.lax.while_loop(lambda v: v[0] < 3, lambda v: jax.lax.psum(v, "replica") + 1, x)


def test_a_branch_that_some_replicas_skip_may_not_communicate(strategy: dl.Strategy) -> None:
    rows = strategy.experimental_distribute_values_from_function(
        lambda context: np.full(2, context.replica_id_in_sync_group, np.float32)
    )
    cases: list[tuple[Any, Any]] = [
        (_differs, EAGERLY),
        (jax.jit(_differs), EAGERLY),
        (_differs_in_a_loop, EAGERLY),
        (_differs_in_a_loop, None),
    ]
    for step, options in cases:
        with pytest.raises(dl.errors.StructureError, match="must reach every collective"):
            strategy.run(step, (rows,), options=options)


def test_a_branch_that_all_replicas_take_may_communicate_eagerly(strategy: dl.Strategy) -> None:
    total = strategy.run(_differs, (np.ones(2, np.float32),), options=EAGERLY)
    assert [float(v) for v in total.values] == [4.0, 4.0]
