"""The replicas' devices as a mesh, and the shardings on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Final, final

import jax
import numpy as np
from jax.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    SingleDeviceSharding,
)

from distlab.devices import selection

AXIS: Final = "replica"
"""Name of the mesh axis; a replica is an index along it."""

MODEL: Final = "model"
"""Name of the axis of a replica's devices, where it has several; XLA divides work along it."""

PART: Final = "part"
"""Name of the axis of parts of one value outside of programs: those of `AXIS` are replicas'."""

SAME_ON_ALL: Final = "distlab_same_on_all"
"""Name of a traced function whose results are the same on all replicas, whatever it computes."""


@final
class ReplicaMesh:
    """The replicas' devices as a JAX mesh, with shardings of rows, copies and one device.

    A replica has `model` devices, neighbours in the list; `devices` has the first of each.
    Where it is `shared`, other processes have replicas, too: an operation on an array of the mesh
    is one of all processes, except on the pieces that lie here, of the `local_replicas`.
    """

    def __init__(self, devices: tuple[jax.Device, ...], model: int = 1) -> None:
        self.model = model
        self._devices = np.array(devices).reshape(-1, model)
        self.devices: tuple[jax.Device, ...] = devices[::model]
        self.names = tuple(selection.name(device) for device in self.devices)
        self.replicas = len(self.devices)
        self.mesh = self.of(range(self.replicas))
        self._seen = self.mesh.abstract_mesh
        if self.replicas > 1 or model == 1:  # XLA can't sum along a manual axis of one device
            self._seen = self._seen.update_axis_types({AXIS: AxisType.Manual})
        self.local_replicas = local_positions(self.mesh)
        self.local_devices = tuple(self.devices[replica] for replica in self.local_replicas)
        self.all_local_devices = tuple(self._devices[list(self.local_replicas)].flat)
        self.shared = len(self.local_replicas) < self.replicas
        self.by_process = _by_process(self.devices)
        self.split = NamedSharding(self.mesh, PartitionSpec(AXIS))
        self.whole = NamedSharding(self.mesh, PartitionSpec())
        self.first = SingleDeviceSharding(self.local_devices[0])

    def of(self, replicas: Iterable[int], axis: str = AXIS) -> Mesh:
        """Returns the mesh of some replicas' devices; its axis is `PART` for parts of one value."""
        devices = self._devices[list(replicas)]
        return Mesh(devices.ravel(), (axis,)) if self.model == 1 else Mesh(devices, (axis, MODEL))

    def seen_by_a_replica(self) -> AbstractContextManager[None]:
        """Returns a context in which JAX traces what one replica computes, as in `shard_map`."""
        return jax.sharding.use_abstract_mesh(self._seen)

    def put_whole(self, value: Any) -> jax.Array:
        """Puts a copy of a value on each device; of several processes, each puts its own value."""
        if not self.shared or getattr(value, "sharding", None) == self.whole:
            return jax.device_put(value, self.whole)
        # `device_put` would compare the processes' values, and wait for all of them.
        return self.joined([value] * len(self.local_replicas), self.whole)

    def put_rows(self, value: Any) -> jax.Array:
        """Puts a value into the row of each replica; of several processes, each puts its own."""
        row = np.asarray(value)[None]
        if not self.shared:
            rows = np.broadcast_to(row, (self.replicas, *row.shape[1:]))
            return jax.device_put(rows, self.split)
        return self.joined([row] * len(self.local_replicas), self.split)

    def joined(self, blocks: Sequence[Any], sharding: NamedSharding) -> jax.Array:
        """Returns the array of a block for each replica here: its row for `split`, else a copy."""
        each = [block for block in blocks for _ in range(self.model)]
        put = [
            jax.device_put(block, device)
            for block, device in zip(each, self.all_local_devices, strict=True)
        ]
        rows = [self.replicas] if sharding is self.split else []
        shape = (*rows, *put[0].shape[len(rows) :])
        return jax.make_array_from_single_device_arrays(shape, sharding, put)


@cache
def replica_mesh(devices: tuple[jax.Device, ...], model: int = 1) -> ReplicaMesh:
    """Returns the mesh of replicas with `model` of these devices; equal ones are one object."""
    return ReplicaMesh(devices, model)


def devices_each(mesh: Mesh | AbstractMesh) -> int:
    """Returns how many devices each replica of a mesh has; 1 in meshes of others."""
    return int(mesh.shape[MODEL]) if mesh.axis_names == (AXIS, MODEL) else 1


@cache
def local_positions(mesh: Mesh) -> tuple[int, ...]:
    """Returns the replicas of a mesh whose devices belong to this process."""
    here, firsts = jax.process_index(), list(mesh.devices.flat)[:: devices_each(mesh)]
    return tuple(n for n, device in enumerate(firsts) if device.process_index == here)


def _by_process(devices: tuple[jax.Device, ...]) -> tuple[tuple[int, ...], ...]:
    found: dict[int, list[int]] = {}
    for replica, device in enumerate(devices):
        found.setdefault(device.process_index, []).append(replica)
    return tuple(map(tuple, found.values()))
