"""The strategies: their devices, their variables and their errors."""

from __future__ import annotations

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab import events
from distlab.errors import (
    BackendStartedError,
    ClusterSpecError,
    ContextError,
    DeviceError,
    OptionError,
)
from distlab.values.distributed import stack
from tests.listening import listening

Central = dl.experimental.CentralStorageStrategy


def _sum(v: jax.Array) -> Any:
    return dl.get_replica_context().all_reduce("SUM", v)


def test_central_storage_keeps_one_copy_on_the_parameter_device() -> None:
    with listening() as heard:
        s = Central(["CPU:1", "CPU:2", "CPU:3"], parameter_device="CPU:0")
        with s.scope():
            v = dl.Variable([10.0], name="w", aggregation=dl.VariableAggregation.MEAN)
    x = stack([jnp.array([float(n)]) for n in (1, 2, 6)], s.mesh)
    s.run(lambda a: v.assign_sub(a), args=(x,))  # noqa: PLW0108 - a method is no replica function
    assert [np.asarray(c).tolist() for c in s.experimental_local_results(v)] == [[7.0]]
    assert v.storage.array.devices() == {jax.devices()[0]}
    assert [float(r[0]) for r in s.run(lambda a: v * a, args=(x,)).values] == [7.0, 14.0, 42.0]
    assert s.extended.parameter_devices == ("CPU:0",)
    assert s.extended.worker_devices == ("CPU:1", "CPU:2", "CPU:3")
    (place,) = [p for p in heard.of(events.Placement) if p.name == "w"]
    assert (place.layout, place.devices, place.bytes_per_device) == ("single", ["CPU:0"], [4])


def test_tpu_strategy_runs_on_the_devices_it_is_assigned() -> None:
    topology = dl.tpu.Topology(["CPU:4", "CPU:6", "CPU:7"])
    assert topology.mesh_shape == (3, 1, 1, 1)
    assignment = dl.tpu.DeviceAssignment.build(topology, num_replicas=2)
    assert [assignment.tpu_device(r) for r in range(2)] == ["CPU:4", "CPU:6"]
    s = dl.TPUStrategy(experimental_device_assignment=assignment)
    x = stack([jnp.float32(1), jnp.float32(5)], s.mesh)
    with listening() as heard:
        assert [float(v) for v in s.run(_sum, args=(x,)).values] == [6.0, 6.0]
        assert float(s.reduce("MEAN", x, axis=None)) == 3.0
    (reduction,) = heard.of(events.Reduction)
    assert reduction.algorithm == "all_reduce"
    assert dl.TPUStrategy().num_replicas_in_sync == 8


def test_wrong_assignments_are_refused() -> None:
    topology = dl.tpu.Topology(["CPU:0", "CPU:1"])
    with pytest.raises(OptionError, match=r"\[replicas, cores, 4\]"):
        dl.tpu.DeviceAssignment(topology, np.zeros((2, 4)))
    with pytest.raises(DeviceError, match="has the coordinates"):
        dl.tpu.DeviceAssignment(topology, np.array([[[9, 0, 0, 0]]]))
    with pytest.raises(DeviceError, match="twice"):
        dl.tpu.DeviceAssignment(topology, np.zeros((2, 1, 4), int))


def test_a_worker_needs_a_task_of_its_cluster() -> None:
    simple = dl.cluster_resolver.SimpleClusterResolver
    two = dl.ClusterSpec({"worker": ["a:1", "b:1"]})
    with pytest.raises(ClusterSpecError, match="name this process's task"):
        dl.MultiWorkerMirroredStrategy(simple(two))
    with pytest.raises(ClusterSpecError, match="this process is worker:2"):
        dl.MultiWorkerMirroredStrategy(simple(two, task_type="worker", task_id=2))


def test_an_evaluator_runs_alone() -> None:
    cluster = dl.ClusterSpec({"chief": ["a:1"], "worker": ["b:1"], "evaluator": ["c:1"]})
    resolver = dl.cluster_resolver.SimpleClusterResolver(cluster, task_type="evaluator", task_id=0)
    assert dl.MultiWorkerMirroredStrategy(resolver).num_replicas_in_sync == 1


def test_one_worker_has_the_cpu_devices_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dl.MultiWorkerMirroredStrategy().device_names == ("CPU:0",)
    assert dl.MultiWorkerMirroredStrategy(devices_per_worker=3).num_replicas_in_sync == 3
    monkeypatch.setenv("DISTLAB_DEVICES_PER_WORKER", "2")
    assert dl.MultiWorkerMirroredStrategy().num_replicas_in_sync == 2
    monkeypatch.setenv("DISTLAB_DEVICES_PER_WORKER", "two")
    with pytest.raises(DeviceError, match="DISTLAB_DEVICES_PER_WORKER must be a whole number"):
        dl.MultiWorkerMirroredStrategy()
    with pytest.raises(BackendStartedError, match="was to have 9 CPU devices"):
        dl.MultiWorkerMirroredStrategy(devices_per_worker=9)


def test_a_strategy_can_not_be_copied() -> None:
    s = dl.OneDeviceStrategy("CPU:0")
    for copier in (copy.copy, copy.deepcopy):
        with pytest.raises(ContextError, match="can't be copied"):
            copier(s)
