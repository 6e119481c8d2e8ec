"""Several steps in one dispatch: `dl.scan` gives what as many calls of run give."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab import events
from distlab.errors import ContextError, StructureError, ValueShapeError
from tests.listening import listening

MODES = pytest.mark.parametrize("eagerly", [False, True])


def _strategy(replicas: int) -> dl.Strategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def _run(strategy: dl.Strategy, fn: Any, *args: Any, eagerly: bool = False) -> Any:
    return strategy.run(fn, args=args, options=dl.RunOptions(run_eagerly=eagerly))


@pytest.mark.slow
@pytest.mark.parametrize(("replicas", "eagerly"), [(1, False), (3, False), (3, True)])
def test_steps_in_one_dispatch_train_as_single_steps_do(replicas: int, eagerly: bool) -> None:
    strategy = _strategy(replicas)
    rng = np.random.default_rng(0)
    data = dl.data.Dataset.from_tensor_slices(
        (rng.standard_normal((12 * replicas, 5)).astype(np.float32), np.ones(12 * replicas, "f4"))
    )
    batches = list(strategy.experimental_distribute_dataset(data.batch(3 * replicas)))
    with strategy.scope():
        models = [[dl.Variable(jnp.zeros(5)), dl.Variable(0, name="steps")] for _ in range(2)]

    def step(model: list[dl.Variable], x: jax.Array, y: jax.Array) -> jax.Array:
        w, steps = model

        def loss_of(value: jax.Array) -> jax.Array:
            return jnp.sum((x @ value - y) ** 2) / (3 * replicas)

        loss, gradient = jax.value_and_grad(loss_of)(w.value())
        loss, gradient = dl.get_replica_context().all_reduce("SUM", (loss, gradient))
        w.assign_sub(0.1 * gradient)
        steps.assign_add(1)
        return loss

    def all_steps(batches: Any) -> jax.Array:
        rows = jax.tree.map(lambda *parts: jnp.stack(parts), *batches)
        return dl.scan(lambda _, batch: (None, step(models[0], *batch)), None, rows)[1]

    losses = _run(strategy, all_steps, batches, eagerly=eagerly)
    singly = [strategy.run(lambda x, y: step(models[1], x, y), args=batch) for batch in batches]
    found = strategy.experimental_local_results(losses)
    for replica in range(replicas):
        expected = [float(strategy.experimental_local_results(loss)[replica]) for loss in singly]
        np.testing.assert_allclose(np.asarray(found[replica]), expected, rtol=1e-5)
    np.testing.assert_allclose(models[0][0].numpy(), models[1][0].numpy(), rtol=1e-5)
    assert [int(model[1]) for model in models] == [4, 4]


@MODES
def test_the_carry_the_rows_and_the_results_are_those_of_jax(eagerly: bool) -> None:
    strategy = _strategy(2)
    xs = {"a": jnp.arange(6.0).reshape(3, 2), "b": jnp.arange(3)}

    def body(state: Any, row: Any) -> Any:
        return {"sum": state["sum"] + row["a"]}, (row["b"] * 2, state["sum"][0])

    init = {"sum": jnp.zeros(2)}
    expected = jax.lax.scan(body, init, xs)
    found = _run(strategy, lambda xs: dl.scan(body, init, xs), xs, eagerly=eagerly)
    for mine, theirs in zip(
        jax.tree.leaves(expected),
        jax.tree.leaves(found, is_leaf=lambda v: isinstance(v, dl.PerReplica)),
        strict=True,
    ):
        np.testing.assert_array_equal(
            np.asarray(strategy.experimental_local_results(theirs)[1]), mine
        )


@MODES
def test_scan_separates_read_and_changed_variables(eagerly: bool) -> None:
    strategy = _strategy(2)
    with strategy.scope():
        rate, total = dl.Variable(0.5), dl.Variable(1.0)
        own = dl.Variable(
            0.0,
            synchronization=dl.VariableSynchronization.ON_READ,
            aggregation=dl.VariableAggregation.SUM,
        )

    def step(state: Any, _: Any) -> Any:
        own.assign_add(dl.get_replica_context().replica_id_in_sync_group + 1.0)
        total.assign(total.value() * rate.value())
        return state, total.value()

    def steps() -> jax.Array:
        total.assign_add(1.0)
        _, totals = dl.scan(step, None, length=3)
        total.assign_add(10.0)
        return totals

    totals = _run(strategy, steps, eagerly=eagerly)
    assert totals.values[1].tolist() == [1.0, 0.5, 0.25]
    assert (float(total), float(rate), float(own)) == (10.25, 0.5, 9.0)


def test_the_body_is_compiled_once_and_recorded_as_one_step() -> None:
    strategy = _strategy(2)
    with strategy.scope():
        w = dl.Variable(0.0)

    def step(state: Any, x: jax.Array) -> Any:
        w.assign_add(dl.get_replica_context().all_reduce("SUM", x.sum()))
        return state, None

    def steps(batches: Any) -> None:
        dl.scan(step, None, jnp.stack(batches))

    dataset = dl.data.Dataset.from_tensor_slices(np.ones(40, np.float32)).batch(4)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    with listening() as heard:
        for _ in range(2):
            strategy.run(steps, args=([next(iterator) for _ in range(5)],))
    assert float(w) == 40.0
    assert [event.examples for event in heard.of(events.Step)] == [20, 20]
    (compiled,) = heard.of(events.Compile)
    assert len(compiled.collectives) == 1


@pytest.mark.parametrize(
    ("xs", "length", "expected"),
    [
        (None, None, "got none"),
        ((jnp.ones(2), jnp.ones(3)), None, r"got \[2, 3\]"),
        (jnp.ones(2), 3, r"got \[2, 3\]"),
        (jnp.float32(1), None, "rows of arrays"),
    ],
)
def test_a_number_of_steps_that_is_not_one_is_refused(xs: Any, length: Any, expected: str) -> None:
    strategy = _strategy(2)
    with strategy.scope():
        w = dl.Variable(1.0)

    def steps() -> None:
        dl.scan(lambda state, _: (state, w.assign_add(1.0).value()), None, xs, length)

    with pytest.raises(ValueShapeError, match=expected):
        _run(strategy, steps)
    assert float(w) == 1.0


@MODES
def test_a_body_without_a_pair_is_refused(eagerly: bool) -> None:
    with pytest.raises(StructureError, match=r"returns \(carry, result\).*\(None, loss\)"):
        _run(_strategy(2), lambda: dl.scan(lambda _, x: x, None, jnp.ones(2)), eagerly=eagerly)


def test_outside_of_a_replica_function_it_is_refused() -> None:
    with pytest.raises(ContextError, match=r"outside of one.*jax\.lax\.scan"):
        dl.scan(lambda state, x: (state, x), None, jnp.ones(2))


def test_an_assignment_in_grad_within_the_body_is_refused() -> None:
    strategy = _strategy(2)
    with strategy.scope():
        w = dl.Variable(1.0)

    def body(state: Any, x: jax.Array) -> Any:
        return state, jax.grad(lambda v: w.assign(v).value())(x)

    with pytest.raises(ContextError, match=r"inside jax\.lax\.scan, cond, jit or grad.*dl\.scan"):
        strategy.run(lambda: dl.scan(body, None, jnp.ones(2)))
    assert float(w) == 1.0


@pytest.mark.parametrize("eagerly", [False, True], ids=["compiled", "eagerly"])
def test_no_rows_leave_the_carry_and_no_results(*, eagerly: bool) -> None:
    s = dl.MirroredStrategy([f"CPU:{n}" for n in range(4)])
    with s.scope():
        seen = dl.Variable(0.0, aggregation=dl.VariableAggregation.SUM)
    data = dl.data.Dataset.range(3).batch(3)
    (batch,) = s.experimental_distribute_dataset(data)

    def step(x: Any) -> Any:
        def one(carry: Any, row: Any) -> Any:
            return carry + row, row * 2.0

        total, doubled = dl.scan(one, 10, x)
        seen.assign_add(1.0 * x.sum())
        return total, doubled

    total, doubled = s.run(step, (batch,), options=dl.RunOptions(run_eagerly=eagerly))
    assert [int(value) for value in total.values] == [10, 11, 12, 10]
    assert [value.tolist() for value in doubled.values] == [[0.0], [2.0], [4.0], []]
    assert float(seen) == 3.0
