"""strategy.extended: the methods for libraries and ported code."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import (
    ArgumentValueError,
)


def _strategy(replicas: int = 3) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def _variable(s: dl.Strategy, value: Any) -> dl.Variable:
    with s.scope():
        return dl.Variable(value)


def _local(s: dl.Strategy, value: Any) -> list[Any]:
    return [np.asarray(v).tolist() for v in s.experimental_local_results(value)]


@pytest.mark.parametrize(("group", "traced"), [(False, False), (True, True)])
def test_each_call_of_update_may_write_to_its_own_array_of_numpy(group: bool, traced: bool) -> None:
    s = _strategy(2)
    v = _variable(s, [0.0])
    given, named = np.zeros(1, np.float32), np.zeros(1, np.float32)

    def write(copy: Any, values: Any, *, more: Any) -> Any:
        values[0] += 1
        more += 10
        return copy.assign_add(values[0] + more)

    def update(_: Any = None) -> Any:
        return s.extended.update(v, write, args=([given],), kwargs={"more": named}, group=group)

    if traced:
        s.run(lambda: (dl.get_replica_context().merge_call(update), 0)[1])
    else:
        update()
    assert _local(s, v) == [[11.0], [11.0]]
    assert [given.tolist(), named.tolist()] == [[0], [0]]


def test_a_replica_context_names_its_device_or_that_of_all() -> None:
    s = _strategy(2)
    told: list[tuple[str, ...]] = []

    def step() -> None:
        told.append(dl.get_replica_context().devices)

    s.run(step, options=dl.RunOptions(run_eagerly=True))
    s.run(step)
    dl.OneDeviceStrategy("CPU:3").run(step)
    assert told == [("CPU:0",), ("CPU:1",), ("CPU:0", "CPU:1"), ("CPU:3",)]


def test_a_tpu_replica_has_one_core() -> None:
    topology = dl.tpu.Topology()
    assignment = dl.tpu.DeviceAssignment.build(topology, 2)
    s = dl.TPUStrategy(experimental_device_assignment=assignment)
    x = jnp.ones((4, 2))
    assert s.experimental_assign_to_logical_device(x, 0) is x
    assert s.experimental_split_to_logical_devices(x, [1, 1]) is x
    assert s.experimental_replicate_to_logical_devices(x) is x
    with pytest.raises(ArgumentValueError, match=r"must be below 1, .*got 1.*DeviceAssignment"):
        s.experimental_assign_to_logical_device(x, 1)
    with pytest.raises(ArgumentValueError, match=r"must be 1, the number .*got \[2, 1\]"):
        s.experimental_split_to_logical_devices(x, [2, 1])
    with pytest.raises(ArgumentValueError, match=r"dimension, got \[1\] for the shape \[4, 2\]"):
        s.experimental_split_to_logical_devices(x, [1])
