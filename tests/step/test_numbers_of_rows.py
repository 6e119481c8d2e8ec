"""Python numbers of a batch's shape, as `x.shape[0]`, differ between replicas in a last batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import distlab as dl

AXIS = "replica"
REPLICAS = 4


@pytest.fixture
def strategy() -> dl.Strategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(REPLICAS)])


@pytest.fixture(params=[False, True], ids=["compiled", "eagerly"])
def options(request: pytest.FixtureRequest) -> dl.RunOptions:
    return dl.RunOptions(run_eagerly=request.param)


def _rows(strategy: dl.Strategy, rows: int) -> Any:
    data = dl.data.Dataset.range(rows).batch(rows)
    return next(iter(strategy.experimental_distribute_dataset(data)))


def _per_replica(rows: int) -> list[int]:
    """The rows of each replica: as many as a full part has, as long as there are some."""
    part = -(-rows // REPLICAS)
    return [max(0, min(part, rows - part * n)) for n in range(REPLICAS)]


def _values(result: Any) -> list[float]:
    return [float(value) for value in getattr(result, "values", [result] * REPLICAS)]


SUMS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "an int": (lambda x: jax.lax.psum(x.shape[0], AXIS), 1),
    "a float": (lambda x: jax.lax.psum(0.5 * x.shape[0], AXIS), 0.5),
    "a NumPy number": (lambda x: jax.lax.psum(np.float32(x.shape[0]), AXIS), 1),
    "a mean": (lambda x: jax.lax.pmean(float(x.shape[0]), AXIS), 1 / REPLICAS),
    "in a nest": (lambda x: jax.lax.psum({"x": x.sum(), "n": len(x)}, AXIS)["n"], 1),
    "of a gradient": (
        lambda x: jax.grad(lambda v: v * jax.lax.psum(len(x), AXIS))(1.0),
        1,
    ),
}


def test_psum_adds_each_replica_s_own_number(strategy: dl.Strategy, options: dl.RunOptions) -> None:
    def step(x: Any) -> Any:
        of_one = x.sum() * 0 + len(range(jax.lax.psum(1, AXIS)))
        return of_one, {name: function(x) for name, (function, _) in SUMS.items()}

    for rows in (3, 7, 8):
        of_one, totals = strategy.run(step, (_rows(strategy, rows),), options=options)
        assert _values(of_one) == [REPLICAS] * REPLICAS
        for name, (_, factor) in SUMS.items():
            assert _values(totals[name]) == [rows * factor] * REPLICAS, name


def test_psum_inside_of_jit_adds_each_replica_s_own_number(strategy: dl.Strategy) -> None:
    inner = jax.jit(lambda x: jax.lax.psum(x.shape[0], AXIS) + x.sum() * 0)
    for rows in (7, 5, 8, 5):
        assert _values(strategy.run(inner, (_rows(strategy, rows),))) == [rows] * REPLICAS


AGGREGATIONS: dict[str, Callable[[list[int]], float]] = {
    "MEAN": lambda rows: sum(rows) / REPLICAS,
    "ONLY_FIRST_REPLICA": lambda rows: rows[0],
}
SIGNS = {"assign": 1, "assign_add": 1, "assign_sub": -1}


def test_an_assigned_number_is_aggregated(strategy: dl.Strategy, options: dl.RunOptions) -> None:
    with strategy.scope():
        variables = {
            (verb, name): dl.Variable(0.0, aggregation=dl.VariableAggregation[name])
            for verb in SIGNS
            for name in AGGREGATIONS
        }

    def step(x: Any) -> None:
        for (verb, _), v in variables.items():
            getattr(v, verb)(x.shape[0])

    for rows in (3, 7):
        for v in variables.values():
            v.assign(0.0)
        assert strategy.run(step, (_rows(strategy, rows),), options=options) is None
        for (verb, name), v in variables.items():
            value = SIGNS[verb] * AGGREGATIONS[name](_per_replica(rows))
            assert [float(copy) for copy in v.values] == [value] * REPLICAS, (verb, name)


def test_a_sum_of_python_numbers_is_refused(strategy: dl.Strategy, options: dl.RunOptions) -> None:
    with strategy.scope():
        v = dl.Variable(0.0, aggregation=dl.VariableAggregation.SUM)

    def step(x: Any) -> None:
        v.assign(x.shape[0])

    for rows in (7, 8):
        with pytest.raises(dl.errors.ValueShapeError, match="the same on all replicas, so its SUM"):
            strategy.run(step, (_rows(strategy, rows),), options=options)
    assert float(v) == 0


def test_merge_call_reduces_each_replica_s_own_number(
    strategy: dl.Strategy, options: dl.RunOptions
) -> None:
    def step(x: Any) -> Any:
        def total(strategy: dl.Strategy, own: Any) -> Any:
            return strategy.reduce("SUM", own, axis=None)

        return dl.get_replica_context().merge_call(total, (x.shape[0],))

    for rows in (3, 7):
        total = strategy.run(step, (_rows(strategy, rows),), options=options)
        assert set(_values(total)) == {rows}


def test_replicas_of_some_shapes_alone_may_print(
    strategy: dl.Strategy, options: dl.RunOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    def step(x: Any) -> None:
        if x.shape[0] == 1:
            jax.debug.print("{}", x)

    for rows in (3, 7):
        strategy.run(step, (_rows(strategy, rows),), options=options)
        jax.effects_barrier()
        assert len(capsys.readouterr().out.split("\n")) - 1 == _per_replica(rows).count(1)
