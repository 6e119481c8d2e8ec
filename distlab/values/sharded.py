"""Arrays that the user divided over the replicas' devices, with `jax.device_put` for example.

Where each replica's device holds one part, and the parts follow one another along the first
axis, such an array is a per-replica value. Any other division has no meaning for replicas.
"""

from __future__ import annotations

import functools
from typing import Any, final

import jax

from distlab.devices.jax_internals import uncommitted
from distlab.devices.mesh import ReplicaMesh
from distlab.devices.pieces import is_divided
from distlab.errors import ShardingError
from distlab.values.distributed import DistributedValues, Shape, of_replica, stack
from distlab.values.stacks import require_no_stack


@final
@jax.tree_util.register_pytree_node_class
class Sharded(DistributedValues):
    """An array that the user divided along its first axis, one part on each replica."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def values(self) -> tuple[Any, ...]:
        """The parts in replica order, each on its replica's device."""
        by_start = {shard.index[0].start or 0: shard for shard in self.array.addressable_shards}
        return tuple(uncommitted(by_start[start].data) for start in sorted(by_start))

    def component_type(self) -> tuple[Any, int]:
        """Returns the dtype of each part and its rank."""
        return self.array.dtype, self.array.ndim

    def component(self, replica: Any) -> Any:
        """Returns one replica's part."""
        return of_replica(self.values, replica, self.array)

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        """Returns the array as the child."""
        return (self.array,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any]) -> Sharded:
        """Returns the value with another array."""
        return cls(children[0])

    def __repr__(self) -> str:
        """Shows dtype and shape."""
        return f"Sharded({getattr(self.array, 'dtype', '?')}{list(self.array.shape)})"


def as_distributed(value: Any, mesh: ReplicaMesh, what: str) -> Any:
    """Returns an array that the user divided over the replicas as a distributed value."""
    if mesh.replicas == 1 or not isinstance(value, jax.Array):
        return value
    require_no_stack(value, what)
    if not is_divided(value):
        return value
    if not _is_over_replicas(value.sharding, value.shape, mesh):
        raise ShardingError(
            f"{what}, {value.dtype}{list(value.shape)} on {_on(value.sharding)}, must have one "
            f"part for each of the {mesh.replicas} replicas, in their order along its first axis; "
            "an array that every replica needs must be whole. Divide it with "
            "jax.device_put(array, strategy.mesh.split), or copy it to each device with "
            "jax.device_put(array, strategy.mesh.whole)."
        )
    return Sharded(value)


def as_per_replica(value: Any, mesh: ReplicaMesh, what: str) -> Any:
    """Returns `as_distributed(...)` with a `PerReplica` where the user divided an array."""
    value = as_distributed(value, mesh, what)
    return stack(value.values, mesh) if isinstance(value, Sharded) else value


@functools.lru_cache(maxsize=512)
def _is_over_replicas(sharding: Any, shape: Shape, mesh: ReplicaMesh) -> bool:
    """Returns whether each replica has a part of its own, along the first axis alone."""
    indices = sharding.devices_indices_map(shape)
    devices = list(mesh.mesh.devices.flat)
    if set(indices) != set(devices):
        return False
    starts = []
    for device in devices:
        (start, _), *others = (
            s.indices(n)[:2] for s, n in zip(indices[device], shape, strict=True)
        )
        if others != [(0, n) for n in shape[1:]]:
            return False
        starts.append(start)
    each = sorted(set(starts))
    return starts == [start for start in each for _ in range(mesh.model)]


def _on(sharding: Any) -> str:
    spec = getattr(sharding, "spec", None)
    count = f"{len(sharding.device_set)} devices"
    return count if spec is None else f"{count} as {spec}"
