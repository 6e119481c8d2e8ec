"""Sums in the memory of CPU devices: the same bits as XLA's, and arrays that nobody changes."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab import events
from distlab.collectives.host_sums import host_sum
from tests.listening import listening


@pytest.mark.parametrize("dtype", ["uint32", "complex64"])
def test_arrays_are_added_one_after_another(dtype: str) -> None:
    rng = np.random.default_rng(0)
    for shape, count in (((), 5), ((5,), 1), ((0, 3), 2), ((300, 1000), 5), ((2_200_001,), 2)):
        arrays = [(rng.standard_normal(shape) * 1000).astype(dtype) for _ in range(count)]
        before = [array.copy() for array in arrays]
        expected = functools.reduce(np.add, before)
        total = host_sum(arrays)
        assert (total.shape, total.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(total, expected)
        for array, old in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, old)


def test_a_large_sum_has_the_same_bits_early_and_late() -> None:
    strategy = dl.MirroredStrategy([f"CPU:{i}" for i in range(8)])

    def values() -> jax.Array:
        replica = dl.get_replica_context().replica_id_in_sync_group
        key = jax.random.fold_in(jax.random.key(0), replica)
        return (1000 * jax.random.normal(key, (300, 301))).astype("float32")

    x = strategy.run(values)
    early = strategy.reduce("SUM", x, axis=None)
    jax.block_until_ready(x)
    late = strategy.reduce("SUM", x, axis=None)
    rows = [np.asarray(row) for row in x.values]
    np.testing.assert_array_equal(np.asarray(early), np.asarray(late))
    np.testing.assert_array_equal(np.asarray(late), functools.reduce(np.add, rows))
    np.testing.assert_array_equal(rows[3], np.asarray(x.values[3]))


def test_each_value_of_a_reduced_structure_is_reported() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    x = strategy.run(
        lambda: {
            "small": jnp.ones(4),
            "scalar": dl.get_replica_context().replica_id_in_sync_group + 1.0,
            "large": jnp.full((200, 200), 2.0),
            "whole": jnp.arange(3),
        }
    )
    jax.block_until_ready(x)
    with listening() as heard:
        total = strategy.reduce("MEAN", x, axis=None)
    assert total["small"].tolist() == [1.0] * 4
    assert float(total["scalar"]) == 1.5
    assert float(total["large"][7, 7]) == 2.0
    assert total["whole"].tolist() == [0.0, 1.0, 2.0]
    reductions = heard.of(events.Reduction)
    assert sorted(event.bytes for event in reductions) == [4, 12, 16, 160_000]
    assert len({event.call for event in reductions}) == 1
    assert len({event.array for event in reductions}) == 4


def test_one_irreducible_value_stops_the_whole_structure() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    x = strategy.run(lambda: jnp.ones(3))
    ragged = strategy.experimental_distribute_values_from_function(
        lambda c: jnp.ones(2 + c.replica_id_in_sync_group)
    )
    with listening() as heard, pytest.raises(dl.errors.ValueShapeError, match="shapes differ"):
        strategy.reduce("SUM", [x, ragged], axis=None)
    assert not heard.of(events.Reduction)
    sums = strategy.reduce("SUM", [x, ragged], axis=0)
    assert [float(total) for total in sums] == [6.0, 5.0]
