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


@misuse(errors.DeviceError, "must be a list of names", "got a Mesh", "list(mesh.devices.flat)")
def a_mesh_in_place_of_devices(w: World) -> None:
    dl.MirroredStrategy(jax.make_mesh((8,), ("x",)))  # type: ignore[arg-type]


@misuse(errors.BackendStartedError, "before JAX starts", "8 CPU device", "restart the kernel")
def more_cpu_devices_too_late(w: World) -> None:
    dl.use_cpu_devices(4)
