"""Misuse of strategies, devices, clusters and options when they are made."""

from __future__ import annotations

import jax

import distlab as dl
from distlab import errors
from tests.misuse.world import World, misuse


@misuse(errors.DeviceError, "this process has CPU:0", "CPU:12", "use_cpu_devices(13)")
def a_device_that_is_not_there(w: World) -> None:
    dl.MirroredStrategy(["CPU:12"])


@misuse(errors.DeviceError, "can be used once", "CPU:0 twice", "['CPU:0', 'CPU:0']")
def one_device_twice(w: World) -> None:
    dl.MirroredStrategy(["CPU:0", "cpu:0"])


@misuse(errors.DeviceError, "at least one device", "empty list", "needs at least")
def no_devices(w: World) -> None:
    dl.MirroredStrategy([])


@misuse(errors.DeviceError, "must be a list of names", "got a int", "write ['CPU:0', 'CPU:1']")
def a_number_of_devices(w: World) -> None:
    dl.MirroredStrategy(8)  # type: ignore[arg-type]


@misuse(errors.DeviceError, "must be a list of names", "got a Mesh", "list(mesh.devices.flat)")
def a_mesh_in_place_of_devices(w: World) -> None:
    dl.MirroredStrategy(jax.make_mesh((8,), ("x",)))  # type: ignore[arg-type]


@misuse(errors.OptionError, "must be a CrossDeviceOps", "'nccl'", "NcclAllReduce()")
def an_algorithm_by_name(w: World) -> None:
    dl.MirroredStrategy(cross_device_ops="nccl")  # type: ignore[arg-type]


@misuse(errors.OptionError, "must be a CrossDeviceOps", "<class", "NcclAllReduce()")
def an_algorithms_class(w: World) -> None:
    dl.MirroredStrategy(cross_device_ops=dl.NcclAllReduce)  # type: ignore[arg-type]


@misuse(errors.OptionError, "num_packs must be a whole number", "-1", "Use 1")
def a_negative_number_of_packs(w: World) -> None:
    dl.HierarchicalCopyAllReduce(num_packs=-1)


@misuse(errors.ArgumentTypeError, "can't be made itself", "Strategy is", "Make a MirroredStrategy")
def the_base_class(w: World) -> None:
    dl.Strategy(["CPU:0"])


@misuse(errors.BackendStartedError, "before JAX starts", "8 CPU device", "restart the kernel")
def more_cpu_devices_too_late(w: World) -> None:
    dl.use_cpu_devices(4)


@misuse(errors.DeviceError, "a whole number of devices", "'8'", "Use 8")
def a_number_of_cpu_devices_in_words(w: World) -> None:
    dl.use_cpu_devices("8")  # type: ignore[arg-type]


@misuse(errors.ArgumentTypeError, "must be a distlab.tpu.Topology", "'v3-8'", "Topology()")
def a_topology_by_name(w: World) -> None:
    dl.tpu.DeviceAssignment.build("v3-8", 2)  # type: ignore[arg-type]


@misuse(errors.DeviceError, "between 1 and the number of devices", "got 9", "8, got 9")
def more_tpu_replicas_than_devices(w: World) -> None:
    dl.tpu.DeviceAssignment.build(dl.tpu.Topology(), 9)


@misuse(errors.ArgumentTypeError, "must be a ClusterResolver", "got a str", "Leave it out")
def a_cluster_by_address(w: World) -> None:
    dl.MultiWorkerMirroredStrategy("grpc://")  # type: ignore[arg-type]


@misuse(errors.BackendStartedError, "before JAX starts", "was made", "Make the strategy first")
def a_cluster_of_two_workers(w: World) -> None:
    resolver = dl.cluster_resolver
    spec = resolver.ClusterSpec({"worker": ["a:1", "b:1"]})
    dl.MultiWorkerMirroredStrategy(resolver.SimpleClusterResolver(spec, "", "worker", 0))


@misuse(errors.ArgumentTypeError, "a dict from job names", "['a:1']", 'ClusterSpec({"worker"')
def a_cluster_in_a_list(w: World) -> None:
    dl.cluster_resolver.ClusterSpec(["a:1"])  # type: ignore[arg-type]


@misuse(errors.DeviceError, "has the coordinates", "99", "the grid is (8, 1, 1, 1)")
def a_core_that_is_not_there(w: World) -> None:
    dl.tpu.DeviceAssignment(dl.tpu.Topology(), [[[99, 0, 0, 0]]])  # type: ignore[arg-type]
