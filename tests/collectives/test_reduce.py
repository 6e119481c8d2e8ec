"""Reduction of per-replica values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab.errors import ContextError, ValueShapeError
from distlab.values.distributed import stack


def _strategy(replicas: int = 2) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def _one_device() -> dl.OneDeviceStrategy:
    return dl.OneDeviceStrategy("CPU:1")


@settings(max_examples=5, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any), seed=st.integers(0, 9)
)
def test_the_mean_over_axis_zero_is_that_over_all_examples(sizes: list[int], seed: int) -> None:
    s = _strategy(3)
    rows = np.random.default_rng(seed).normal(size=(sum(sizes), 2)).astype(np.float32)
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    x = stack(parts, s.mesh)
    np.testing.assert_allclose(s.reduce("MEAN", x, axis=0), rows.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(s.reduce("SUM", x, axis=(0, 1)), rows.sum(), rtol=1e-4, atol=1e-5)


def test_padding_is_never_counted_even_when_it_is_not_a_number() -> None:
    s = _strategy()
    x = stack([jnp.array([1.0, 2.0]), jnp.array([4.0])], s.mesh)
    undefined = s.run(lambda v: v / v, args=(x,))  # 0 / 0 in the padding
    assert float(s.reduce("SUM", undefined, axis=0)) == 3.0


@pytest.mark.parametrize("make", [_strategy, _one_device])
def test_a_mean_of_integers_is_a_fraction_on_any_strategy(
    make: Callable[[], dl.Strategy],
) -> None:
    numbers = jnp.array([[1, 2], [4, 5]])
    assert make().reduce("MEAN", numbers, axis=0).tolist() == [2.5, 3.5]
    assert make().reduce("MEAN", numbers.astype(jnp.uint8), axis=1).tolist() == [1.5, 4.5]


def test_a_plain_value_with_an_axis_counts_once_for_each_replica() -> None:
    s = _strategy(3)
    assert s.reduce("SUM", jnp.array([[1, 2], [4, 5]]), axis=0).tolist() == [15, 21]
    with pytest.raises(ValueShapeError, match="its sum is ambiguous"):
        s.reduce("SUM", jnp.array([[1, 2], [4, 5]]), axis=None)


@pytest.mark.parametrize("eagerly", [False, True])
def test_copies_assigned_alone_are_reduced_and_gathered(eagerly: bool) -> None:
    s = _strategy(3)
    with s.scope():
        weight = dl.Variable([1.0, 2.0])
    factor = stack([jnp.float32(1), jnp.float32(2), jnp.float32(3)], s.mesh)
    dl.run_functions_eagerly(eagerly)
    try:
        s.run(lambda x: weight.assign(weight * x), args=(factor,))
    finally:
        dl.run_functions_eagerly(False)
    assert s.reduce("SUM", weight, axis=0).tolist() == 18.0
    assert s.reduce("MEAN", weight, axis=0).tolist() == 3.0
    assert s.reduce("MEAN", weight, axis=None).tolist() == [1.0, 2.0]
    assert s.gather(weight, axis=0).tolist() == [1.0, 2.0, 2.0, 4.0, 3.0, 6.0]


def test_another_strategys_copies_are_not_gathered() -> None:
    with _strategy(3).scope():
        other = dl.Variable([1.0, 2.0], name="other")
    with pytest.raises(ContextError, match=r"other of MirroredStrategy.*variable.value\(\)"):
        _strategy().gather(other, axis=0)


def test_reduce_of_a_python_number_names_jnp_asarray() -> None:
    s = _strategy(2)
    rows = jnp.zeros((3, 2))
    plain = s.run(lambda x: x.shape[0], args=(rows,))
    combined: list[Callable[[Any], Any]] = [
        lambda value: s.reduce("SUM", value, axis=None),
        lambda value: s.gather(value, axis=0),
    ]
    for combine in combined:
        with pytest.raises(ValueShapeError, match=r"plain int: .*Return jnp\.asarray\(number\)"):
            combine(plain)
        with pytest.raises(ValueShapeError, match="Pass what run returned"):
            combine(rows)
    each = s.run(lambda x: jnp.asarray(x.shape[0]), args=(rows,))
    assert int(s.reduce("SUM", each, axis=None)) == 6
