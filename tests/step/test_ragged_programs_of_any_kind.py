"""Random functions on random shapes: a ragged step computes what eager mode does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab.values.distributed import stack

REPLICAS = 4

State = dict[str, Any]
"""A replica's rows `(n, 2)`, two numbers per column, and a random key."""

Operation = Callable[[State], State]


def _context() -> Any:
    return dl.get_replica_context()


def _shifted(state: State) -> State:
    return {**state, "rows": jnp.tanh(state["rows"] + state["columns"])}


def _summed(state: State) -> State:
    return {**state, "columns": _context().all_reduce("SUM", state["rows"].sum(axis=0)) / 10}


def _averaged(state: State) -> State:
    rows, columns = state["rows"], state["columns"]
    nest = {"all": rows.sum(), "squares": (rows**2).sum(axis=0), "own": columns}
    means = _context().all_reduce("MEAN", nest)
    return {**state, "columns": means["squares"] / 4 - means["own"] + means["all"]}


def _merged(state: State) -> State:
    def merge(strategy: Any, rows: Any, columns: Any) -> Any:
        total = strategy.reduce("SUM", columns, axis=None)
        update = strategy.extended.call_for_each_replica
        return update(lambda r, t: r + t / 8, args=(rows, total))

    return {**state, "rows": _context().merge_call(merge, args=(state["rows"], state["columns"]))}


def _gathered(state: State) -> State:
    every = _context().all_gather(state["rows"], axis=0)
    return {**state, "columns": state["columns"] + every.sum(axis=0) / 20}


def _drawn(state: State) -> State:
    key = jax.random.fold_in(state["key"], _context().replica_id_in_sync_group)
    noise = jax.random.uniform(key, state["rows"].shape)
    return {**state, "rows": state["rows"] + noise, "key": jax.random.split(key)[0]}


def _looped(state: State) -> State:
    def body(carry: Any, _: None) -> tuple[Any, None]:
        return carry * 0.5 + _context().replica_id_in_sync_group, None

    rows, _ = jax.lax.scan(body, state["rows"], length=2)
    return {**state, "rows": rows}


def _branched(state: State) -> State:
    number = _context().replica_id_in_sync_group
    rows = jax.lax.cond(number > 1, lambda v: v - number, lambda v: v * 2, state["rows"])
    return {**state, "rows": rows}


def _by_shape(state: State) -> State:
    rows = state["rows"]
    return {**state, "columns": rows.mean(axis=0) if rows.shape[0] else jnp.full(2, 0.25)}


def _assigned(state: State, variable: dl.Variable) -> State:
    variable.assign_add(state["columns"])
    return {**state, "columns": variable.value() / 2}


PLAIN: list[Operation] = [
    _shifted,
    _summed,
    _averaged,
    _merged,
    _gathered,
    _drawn,
    _looped,
    _branched,
    _by_shape,
]

sizes = st.lists(st.integers(0, 3), min_size=REPLICAS, max_size=REPLICAS)


def _strategy() -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(REPLICAS)])


def _rows(strategy: dl.Strategy, counts: list[int]) -> Any:
    rng = np.random.default_rng(sum(counts))
    return stack([rng.random((n, 2), np.float32) for n in counts], strategy.mesh)


def _start(rows: jax.Array, key: jax.Array) -> State:
    return {"rows": rows, "columns": rows.sum(axis=0), "key": key}


def _end(state: State) -> State:
    drawn = jax.random.uniform(state["key"])
    return {**state, "key": jax.random.fold_in(state["key"], 0), "drawn": drawn}


def _numbers(strategy: dl.Strategy, nest: Any) -> list[list[np.ndarray]]:
    """Returns each leaf's components; those of keys as plain numbers."""
    leaves = jax.tree.leaves(nest, is_leaf=lambda leaf: isinstance(leaf, dl.DistributedValues))
    return [
        [
            np.asarray(
                jax.random.key_data(one) if jnp.issubdtype(one.dtype, jax.dtypes.prng_key) else one
            )
            for one in map(jnp.asarray, strategy.experimental_local_results(leaf))
        ]
        for leaf in leaves
    ]


def _assert_equal(ours: list[list[np.ndarray]], expected: list[list[np.ndarray]]) -> None:
    assert len(ours) == len(expected)
    for mine, theirs in zip(ours, expected, strict=True):
        assert [one.shape for one in mine] == [one.shape for one in theirs]
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-5)


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(counts=sizes, steps=st.lists(st.sampled_from(PLAIN), max_size=5))
def test_any_function_computes_what_eager_mode_does(
    counts: list[int], steps: list[Operation]
) -> None:
    s = _strategy()

    def fn(rows: jax.Array, key: jax.Array) -> State:
        state = _start(rows, key)
        for step in steps:
            state = step(state)
        return _end(state)

    args = (_rows(s, counts), jax.random.key(7))
    eager = _numbers(s, s.run(fn, args=args, options=dl.RunOptions(run_eagerly=True)))
    _assert_equal(_numbers(s, s.run(fn, args=args)), eager)
    inside = jax.jit(lambda *values: s.run(fn, args=values))
    _assert_equal(_numbers(s, inside(*args)), eager)


@settings(max_examples=3, deadline=None)
@given(counts=sizes, steps=st.lists(st.sampled_from([*PLAIN, None, None]), max_size=5))
def test_any_function_leaves_variables_as_eager_mode_does(
    counts: list[int], steps: list[Operation | None]
) -> None:
    s = _strategy()
    found = []
    for eagerly in (True, False):
        with s.scope():
            mirrored = dl.Variable(np.ones(2, np.float32), aggregation=dl.VariableAggregation.MEAN)
            own = dl.Variable(
                np.zeros(2, np.float32),
                synchronization=dl.VariableSynchronization.ON_READ,
                aggregation=dl.VariableAggregation.SUM,
            )

        def fn(rows: jax.Array, key: jax.Array, mirrored: Any = mirrored, own: Any = own) -> State:
            state = _start(rows, key)
            for number, step in enumerate(steps):
                if step is None:
                    state = _assigned(state, own if number % 2 else mirrored)
                else:
                    state = step(state)
            return _end(state)

        options = dl.RunOptions(run_eagerly=eagerly)
        for _ in range(2):
            results = s.run(fn, args=(_rows(s, counts), jax.random.key(7)), options=options)
        after = [[np.asarray(v.value())] for v in (mirrored, own)]
        found.append([*_numbers(s, results), *after])
    _assert_equal(found[1], found[0])
