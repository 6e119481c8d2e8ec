"""`experimental_distribute_values_from_function` with functions that fill one array of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

import distlab as dl
from distlab.values.stacks import has_equal_rows


def _strategy() -> dl.Strategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def test_each_replica_has_the_array_as_it_was_returned() -> None:
    strategy = _strategy()
    filled = np.zeros(3, np.float32)

    def value_fn(context: dl.ValueContext) -> Any:
        filled[:] = context.replica_id_in_sync_group
        return {"numbers": [filled]}

    values = strategy.experimental_distribute_values_from_function(value_fn)
    filled[:] = 7
    assert [part.tolist() for part in values["numbers"][0].values] == [[0.0] * 3, [1.0] * 3]


def test_an_array_that_stays_as_it_is_is_shared() -> None:
    same = np.arange(3.0, dtype=np.float32)
    values = _strategy().experimental_distribute_values_from_function(lambda _: same)
    assert [part.tolist() for part in values.values] == [[0.0, 1.0, 2.0]] * 2
    assert has_equal_rows(values.stacked)


def test_values_of_a_merge_call_are_those_of_each_replica() -> None:
    strategy = _strategy()
    filled = np.zeros(2, np.float32)

    def value_fn(context: dl.ValueContext) -> np.ndarray:
        filled[:] = context.replica_id_in_sync_group
        return filled

    def merge(strategy: dl.Strategy) -> Any:
        return strategy.experimental_distribute_values_from_function(value_fn)

    result = strategy.run(lambda: dl.get_replica_context().merge_call(merge))
    assert [part.tolist() for part in result.values] == [[0.0, 0.0], [1.0, 1.0]]
