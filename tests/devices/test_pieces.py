"""The pieces of an array are all there, also after an interrupt while JAX made their objects."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import distlab as dl
from distlab.devices import jax_internals
from distlab.devices.pieces import pieces
from tests.patience import interrupt_at_second_call


def _interrupted(array: Any) -> None:
    """Interrupts JAX where it makes a later piece: JAX 0.10 then leaves pieces out."""
    interrupt_at_second_call("make_single_device_sharding", lambda: jax_internals.pieces(array))


@pytest.fixture
def strategy() -> dl.Strategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(4)])


def test_a_variable_with_interrupted_pieces_can_be_used(
    strategy: dl.Strategy,
) -> None:
    with strategy.scope():
        v = dl.Variable(np.arange(3.0, dtype=np.float32))
    strategy.run(lambda: v.assign_add(np.ones(3, np.float32)))
    _interrupted(v.storage.array)
    assert v.numpy().tolist() == [1.0, 2.0, 3.0]
    assert [copy.numpy().tolist() for copy in v.values] == [[1.0, 2.0, 3.0]] * 4
    strategy.run(lambda: v.assign_add(np.ones(3, np.float32)))
    assert v.numpy().tolist() == [2.0, 3.0, 4.0]


def test_a_result_whose_pieces_were_interrupted_has_all_values(strategy: dl.Strategy) -> None:
    result = strategy.run(lambda: dl.get_replica_context().replica_id_in_sync_group * 2)
    _interrupted(result.stacked)
    assert [int(value) for value in result.values] == [0, 2, 4, 6]


def test_the_pieces_of_keys_are_in_replica_order(strategy: dl.Strategy) -> None:
    keys = strategy.run(
        lambda: jax.random.key(dl.get_replica_context().replica_id_in_sync_group)
    ).stacked
    found = [(n, jax.random.key_data(key).ravel().tolist()) for n, key in pieces(keys)]
    assert found == [(n, [0, n]) for n in range(4)]
