"""The array inside a per-replica value is refused where a value of each replica is meant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab.errors import ValueShapeError

VERBS: dict[str, Callable[[dl.Strategy, Any], Any]] = {
    "reduce MEAN": lambda s, v: s.reduce("MEAN", v, axis=None),
    "reduce SUM": lambda s, v: s.reduce("SUM", v, axis=None),
    "reduce axis": lambda s, v: s.reduce("MEAN", v, axis=0),
    "gather": lambda s, v: s.gather(v, axis=0),
    "local results": lambda s, v: s.experimental_local_results(v),
    "unwrap": lambda s, v: s.unwrap(v),
    "run": lambda s, v: s.run(lambda x: x, args=(v,)),
    "reduce_to": lambda s, v: s.extended.reduce_to("MEAN", v, "CPU:0"),
    "batch_reduce_to": lambda s, v: s.extended.batch_reduce_to("MEAN", [(v, "CPU:0")]),
    "Variable": lambda _, v: dl.Variable(v),
}


def _strategy() -> dl.MirroredStrategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])


def test_a_verb_under_tree_map_says_what_to_write() -> None:
    s = _strategy()
    results = s.run(lambda x: {"a": x + jnp.ones(2)}, args=(1.0,))
    for verb in VERBS.values():
        with pytest.raises(ValueShapeError, match=r"goes into per-replica.*distlab\.nest\.map_str"):
            jax.tree.map(functools.partial(verb, s), results)


def test_both_remedies_work() -> None:
    s = _strategy()
    results = s.run(lambda x: {"a": x + jnp.ones(2)}, args=(1.0,))
    for name, verb in VERBS.items():
        if name != "Variable":
            by_nest = dl.nest.map_structure(functools.partial(verb, s), results)
            by_is_leaf = jax.tree.map(
                functools.partial(verb, s),
                results,
                is_leaf=lambda v: isinstance(v, dl.DistributedValues),
            )
            jax.tree.map(np.testing.assert_array_equal, by_nest, by_is_leaf)


@given(
    shape=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    ragged=st.booleans(),
    keys=st.booleans(),
)
@settings(max_examples=20, deadline=None)
def test_every_per_replica_value_is_recognized(shape: list[int], ragged: bool, keys: bool) -> None:
    s = _strategy()

    def make(context: Any) -> Any:
        rows = 1 + context.replica_id_in_sync_group if ragged else 2
        if keys:
            return jax.random.split(jax.random.key(0), 2)
        return jnp.ones((rows, *shape))

    value = s.experimental_distribute_values_from_function(make)
    doubled = value if keys else jax.jit(lambda v: jax.tree.map(lambda x: x * 2, v))(value)
    for known in (value, doubled, s.run(lambda v: v, args=(value,))):
        with pytest.raises(ValueShapeError, match="all components"):
            jax.tree.map(lambda v: s.reduce("MEAN", v, axis=None), known)


@given(
    shape=st.lists(st.integers(0, 3), max_size=2),
    how=st.sampled_from(["numpy", "one device", "replicated", "component", "gathered", "reduced"]),
)
@settings(max_examples=15, deadline=None)
def test_no_other_array_is_taken_for_one(shape: list[int], how: str) -> None:
    s = _strategy()
    plain = np.ones((3, *shape), np.float32)
    stacked = s.experimental_distribute_values_from_function(lambda _: jnp.asarray(plain))
    makers: dict[str, Callable[[], Any]] = {
        "numpy": lambda: plain,
        "one device": lambda: jnp.asarray(plain),
        "replicated": lambda: jax.device_put(plain, s.mesh.whole),
        "component": lambda: stacked.values[1],
        "gathered": lambda: s.gather(stacked, axis=0)[:3],
        "reduced": lambda: s.reduce("MEAN", stacked, axis=None),
    }
    value = makers[how]()
    np.testing.assert_array_equal(s.reduce("MEAN", value, axis=None), plain)
    assert s.experimental_local_results(value)[0] is value
    for part in s.run(lambda x: x * 1, args=(value,)).values:
        np.testing.assert_array_equal(part, plain)


def test_rows_of_the_users_own_are_what_the_message_says() -> None:
    s = _strategy()
    rows = jax.device_put(jnp.arange(3.0), s.mesh.split)
    with pytest.raises(ValueShapeError, match=r"array of your own.*PerReplica\(array\)"):
        s.reduce("SUM", rows, axis=None)
    assert float(s.reduce("SUM", dl.PerReplica(rows), axis=None)) == 3.0


def test_one_replica_has_plain_values() -> None:
    s = dl.OneDeviceStrategy("CPU:1")
    results = s.run(lambda x: {"a": x + 1.0}, args=(1.0,))
    assert float(jax.tree.map(lambda v: s.reduce("SUM", v, axis=None), results)["a"]) == 2.0
