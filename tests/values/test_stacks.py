"""The array inside a per-replica value is refused where a value of each replica is meant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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


def test_rows_of_the_users_own_are_what_the_message_says() -> None:
    s = _strategy()
    rows = jax.device_put(jnp.arange(3.0), s.mesh.split)
    with pytest.raises(ValueShapeError, match=r"array of your own.*PerReplica\(array\)"):
        s.reduce("SUM", rows, axis=None)
    assert float(s.reduce("SUM", dl.PerReplica(rows), axis=None)) == 3.0
