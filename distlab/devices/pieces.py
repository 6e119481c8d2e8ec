"""The pieces of a global array on this process's devices."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import NamedSharding

from distlab.devices import jax_internals
from distlab.devices.jax_internals import ConcreteArray
from distlab.devices.mesh import PART, devices_each, local_positions


def pieces(array: Any) -> list[tuple[int, Any]]:
    """Returns the addressable pieces of an array on a replica mesh, one a replica."""
    sharding = getattr(array, "sharding", None)
    if isinstance(array, jax.core.Tracer) or not isinstance(sharding, NamedSharding):
        return [(0, array)]
    of_replicas = held(array)[:: devices_each(sharding.mesh)]
    return list(zip(local_positions(sharding.mesh), of_replicas, strict=True))


def held(array: Any) -> list[Any]:
    """Returns the pieces of an array on this process's devices of a mesh, in its order."""
    if type(array) is ConcreteArray:
        return jax_internals.pieces(array)
    by_device = {shard.device: shard.data for shard in array.addressable_shards}  # random keys
    return [by_device[one] for one in array.sharding.mesh.devices.flat if one in by_device]


def first_piece(array: Any) -> Any:
    """Returns the first addressable piece of an array; raises what `pieces` raises."""
    return pieces(array)[0][1]


def moved(arrays: Any, device: jax.Device | jax.sharding.Sharding) -> Any:
    """Returns arrays on one device; JAX 0.12 goes by way of the host, which guards would refuse."""
    with jax.transfer_guard_device_to_host("allow"):
        return jax.device_put(arrays, device)


def is_divided(value: Any) -> bool:
    """Returns whether a value is a concrete array with different parts on different devices.

    The value of a divided variable is not: it is one value, which replicas receive whole.
    """
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
        return False
    sharding = value.sharding
    several = len(sharding.device_set) > 1 and not sharding.is_fully_replicated
    return several and not is_of_parts(value)


def is_of_parts(array: jax.Array) -> bool:
    """Returns whether an array is the value of a divided variable, or computed from it."""
    sharding = array.sharding
    return isinstance(sharding, NamedSharding) and sharding.mesh.axis_names[:1] == (PART,)
