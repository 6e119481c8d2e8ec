"""strategy.extended: the methods for libraries and ported code."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import (
    ArgumentValueError,
    ContextError,
    InvalidArgumentError,
    ReduceOpError,
    ValueShapeError,
)
from distlab.values.distributed import Mirrored, stack


def _strategy(replicas: int = 3) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def _variable(s: dl.Strategy, value: Any) -> dl.Variable:
    with s.scope():
        return dl.Variable(value)


def _local(s: dl.Strategy, value: Any) -> list[Any]:
    return [np.asarray(v).tolist() for v in s.experimental_local_results(value)]


def test_update_calls_a_function_on_every_copy() -> None:
    s = _strategy()
    v = _variable(s, [1.0, 2.0])
    own = stack([jnp.array([float(i), 0.0]) for i in range(3)], s.mesh)
    result = s.extended.update(v, lambda copy, a, b: copy.assign_add(a * b), args=(own, 2.0))
    assert result is v
    assert _local(s, v) == [[1.0, 2.0], [3.0, 2.0], [5.0, 2.0]]


def test_update_groups_results_or_not() -> None:
    s = _strategy(2)
    v = _variable(s, 3.0)
    grouped = s.extended.update(v, lambda copy: {"x": copy * 2})
    assert _local(s, grouped["x"]) == [6.0, 6.0]
    apart = s.extended.update(v, lambda copy: {"x": copy * 2}, group=False)
    assert [float(x) for x in apart["x"]] == [6.0, 6.0]


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize("traced", [False, True])
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


def test_each_call_of_update_non_slot_has_its_own_array() -> None:
    s = _strategy(2)
    given = np.zeros(1, np.float32)
    result = s.extended.update_non_slot(
        s.extended.non_slot_devices([]), lambda x: (x.__iadd__(1), x.tolist())[1], (given,)
    )
    assert _local(s, result[0]) == [1.0, 1.0]
    assert given.tolist() == [0]


def test_reduce_to_places_the_result() -> None:
    s = _strategy(2)
    x = stack([jnp.array([1.0, 2.0]), jnp.array([3.0, 5.0])], s.mesh)
    v = _variable(s, 0.0)
    on_device = s.extended.reduce_to("SUM", x, "CPU:5")
    assert [d.id for d in on_device.devices()] == [5]
    mirrored = s.extended.reduce_to("MEAN", x, v)
    assert isinstance(mirrored, Mirrored)
    assert _local(s, mirrored) == [[2.0, 3.5]] * 2
    batch = s.extended.batch_reduce_to("SUM", [(x, v), (x, x)])
    assert [_local(s, r) for r in batch] == [[[4.0, 7.0]] * 2] * 2


def test_reduce_to_refuses_what_it_can_not_do() -> None:
    s = _strategy(2)
    x = stack([jnp.ones(1), jnp.ones(1)], s.mesh)
    with pytest.raises(InvalidArgumentError, match="destinations must be a device"):
        s.extended.reduce_to("SUM", x, ["CPU:0"])
    with pytest.raises(ReduceOpError):
        s.extended.reduce_to("MAX", x, "CPU:0")
    with pytest.raises(ValueShapeError, match="plain"):
        s.extended.reduce_to("SUM", jnp.ones(1), "CPU:0")
    with pytest.raises(ContextError):
        s.run(lambda: s.extended.reduce_to("SUM", jnp.ones(1), "CPU:0"))
    with pytest.raises(ValueShapeError, match=r"needs a distlab\.Variable"):
        s.extended.update(x, lambda copy: copy)  # type: ignore[arg-type]


def test_copies_know_their_variable() -> None:
    s = _strategy(2)
    v = _variable(s, 1.0)
    first, second = s.experimental_local_results(v)
    assert s.extended.value_container(first) is v
    assert s.extended.value_container(3) == 3
    second.assign(5.0)
    assert _local(s, v) == [1.0, 5.0]
    assert s.experimental_local_results(v)[1] is second


def test_colocate_needs_its_own_scope_and_variable() -> None:
    mine, other = _strategy(2), _strategy(2)
    a, b = _variable(mine, 1.0), _variable(other, 1.0)
    with pytest.raises(ContextError, match="in scope"), mine.extended.colocate_vars_with(a):
        pass
    with mine.scope():
        with mine.extended.colocate_vars_with(a):
            c = dl.Variable(2.0)
        with pytest.raises(ValueShapeError), mine.extended.colocate_vars_with(b):
            pass
    assert mine.extended.variable_created_in_scope(c)
    assert not other.extended.variable_created_in_scope(c)


def test_the_default_strategy_has_no_list_of_devices() -> None:
    extended = dl.get_strategy().extended
    with pytest.raises(ContextError, match="no worker_devices"):
        _ = extended.worker_devices
    with pytest.raises(ContextError, match="no parameter_devices"):
        _ = extended.parameter_devices


def test_broadcast_and_gather() -> None:
    s = _strategy()
    v = _variable(s, 0.0)
    assert _local(s, s.extended.broadcast_to(jnp.ones(2), v)) == [[1.0, 1.0]] * 3
    x = stack([jnp.arange(n, dtype=jnp.float32) for n in (2, 0, 1)], s.mesh)
    assert np.asarray(s.gather(x, axis=0)).tolist() == [0.0, 1.0, 0.0]
    with pytest.raises(ValueShapeError, match="no axis 1"):
        s.gather(x, axis=1)
    with pytest.raises(ValueShapeError, match="plain"):
        s.gather(jnp.ones(2), axis=0)


def test_values_come_from_a_function_of_the_replica() -> None:
    s = _strategy()
    made = s.experimental_distribute_values_from_function(
        lambda context: {"id": context.replica_id_in_sync_group, "of": 7}
    )
    assert _local(s, made["id"]) == [0, 1, 2]
    assert _local(s, made["of"]) == [7, 7, 7]  # wrapped, as in TensorFlow, though all are the same


def test_this_process_makes_saves_and_summarizes_everything() -> None:
    extended = _strategy().extended
    assert extended.should_checkpoint
    assert extended.should_save_summary
    assert extended.experimental_should_init
    assert not extended.experimental_between_graph
    assert list(extended.experimental_make_numpy_dataset(np.arange(3))) == [0, 1, 2]


def test_tensorflow_1_names_on_the_strategy() -> None:
    s = _strategy(2)
    v = _variable(s, 1.0)
    x = stack([jnp.array(1.0), jnp.array(2.0)], s.mesh)
    assert [float(part) for part in s.unwrap(x)] == [1.0, 2.0]
    assert s.unwrap(7) == [7]
    with s.scope(), s.colocate_vars_with(v):
        assert dl.Variable(2.0).strategy is s


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
    with pytest.raises(ArgumentValueError, match=r"must be 0, the one core.*got 1.*jax.sharding"):
        s.experimental_assign_to_logical_device(x, 1)
    with pytest.raises(ArgumentValueError, match=r"must be \[1, 1\].*got \[2, 1\].*jax.sharding"):
        s.experimental_split_to_logical_devices(x, [2, 1])
