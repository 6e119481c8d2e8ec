"""Variables that are divided over the replicas: the mirrored step's numbers, in parts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab import events
from distlab.errors import ArgumentValueError, StructureError
from tests.listening import listening

W = np.arange(32, dtype=np.float32).reshape(8, 4) / 10


def divided(replicas: int = 4, least: int = 16) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(replicas)], shard_variables=least)


def variable(strategy: dl.Strategy, value: Any = W, **options: Any) -> dl.Variable:
    with strategy.scope():
        return dl.Variable(value, name="w", **options)


def parts(v: dl.Variable) -> list[tuple[int, ...]]:
    return [shard.data.shape for shard in v.value().addressable_shards]


def test_a_part_lies_on_each_replica() -> None:
    v = variable(divided())
    assert parts(v) == [(2, 4)] * 4
    np.testing.assert_array_equal(v, W)


@pytest.mark.parametrize(
    ("shape", "axis"), [((8, 3), 0), ((3, 8), 1), ((3, 3, 4), 2), ((3, 5), None), ((2,), None)]
)
def test_the_first_axis_that_divides_is_divided(shape: tuple[int, ...], axis: int | None) -> None:
    v = variable(divided(least=12), np.ones(shape, np.float32))
    whole = tuple(n // 4 if d == axis else n for d, n in enumerate(shape))
    assert {shard.data.shape for shard in v.value().addressable_shards} == {whole}


def test_small_and_on_read_variables_stay_whole() -> None:
    strategy = divided(least=129)
    each = variable(divided(), synchronization=dl.VariableSynchronization.ON_READ)
    assert [variable(strategy).storage.layout.name, each.storage.layout.name] == [
        "replicated",
        "per_replica",
    ]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "yes", None])
def test_other_sizes_are_refused(wrong: Any) -> None:
    with pytest.raises(ArgumentValueError, match="shard_variables must be True, False or"):
        dl.MirroredStrategy(shard_variables=wrong)


def test_events_describe_the_parts() -> None:
    with listening() as heard:
        v = variable(divided())
    (strategy,) = heard.of(events.Strategy)
    (placed,) = heard.of(events.Placement)
    assert strategy.axes == {"replica": 4}
    assert (placed.layout, placed.spec, placed.shape) == ("divided", [["replica"], []], [8, 4])
    assert placed.bytes_per_device == [32] * 4
    assert v._repr_html_().count("32 B") == 4


def test_values_assigned_from_outside_stay_in_parts() -> None:
    strategy = divided()
    v, other = variable(strategy), variable(strategy)
    v.assign(W * 2)
    v.assign_sub(other)
    other.assign(v.value() + 1)
    v.scatter_add(dl.IndexedSlices(jnp.ones((2, 4)), jnp.array([0, 5]), (8, 4)))
    expected = W.copy()
    expected[[0, 5]] += 1
    np.testing.assert_allclose(v, expected, rtol=1e-6)
    np.testing.assert_allclose(other, W + 1, rtol=1e-6)
    assert parts(v) == parts(other) == [(2, 4)] * 4


def test_replicas_receive_a_divided_value_whole() -> None:
    strategy = divided()
    value = variable(strategy).value()
    sums = strategy.run(lambda given: given.sum() + value.sum(), args=(value * 1,))
    np.testing.assert_allclose(sums.values, [2 * W.sum()] * 4, rtol=1e-6)


def test_different_values_of_replicas_are_refused() -> None:
    strategy = divided()
    v = variable(strategy)
    x = next(iter(strategy.experimental_distribute_dataset([np.arange(8.0, dtype=np.float32)])))

    def step(x: jax.Array) -> None:
        v.assign(jnp.ones((8, 4)) * x.sum())

    with pytest.raises(StructureError, match=r"w is divided .* depends on x without an all-reduce"):
        strategy.run(step, args=(x,))
    np.testing.assert_array_equal(v, W)
