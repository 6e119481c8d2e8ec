"""Programs that combine the rows of arrays on the replicas' devices, of all processes together.

Every process calls them, in the same order; each receives the result on its own devices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from distlab.devices import dispatch_order, in_flight
from distlab.devices.jax_internals import uncommitted
from distlab.devices.mesh import AXIS, ReplicaMesh
from distlab.devices.pieces import first_piece


def sums_of_rows(several: list[jax.Array], mesh: ReplicaMesh) -> list[jax.Array]:
    """Returns the sum of the rows of each array, on the first local device."""
    return _results("sum of rows", summing(mesh), several)


def all_rows(several: list[jax.Array], mesh: ReplicaMesh) -> list[jax.Array]:
    """Returns the rows of all replicas, of each array, on the first local device."""
    return _results("rows of all", _gathered(mesh), several)


def whole_of(array: jax.Array) -> jax.Array:
    """Returns an array that is divided over a mesh as a copy on each device, once it is there."""
    assert isinstance(array.sharding, NamedSharding)
    in_flight.require_sound()
    with in_flight.dispatching:
        dispatch_order.note("parts of all", [f"{array.dtype}{list(array.shape)}"])
        whole = _copied(array.sharding.mesh)(array)
        in_flight.admit(whole)
    try:
        return whole.block_until_ready()
    finally:
        in_flight.note_awaited(whole)  # which is large, so nothing else may keep it


@functools.cache
def _copied(mesh: Mesh) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(lambda array: array, out_shardings=NamedSharding(mesh, PartitionSpec()))


def _results(
    what: str, program: Callable[[list[jax.Array]], list[jax.Array]], several: list[jax.Array]
) -> list[jax.Array]:
    in_flight.require_sound()
    with in_flight.dispatching:
        dispatch_order.note(what, [f"{array.dtype}{list(array.shape)}" for array in several])
        results = program(several)
        if results:
            in_flight.admit(results[-1])
    return [uncommitted(first_piece(result)) for result in results]


@functools.cache
def summing(mesh: ReplicaMesh) -> Callable[[list[jax.Array]], list[jax.Array]]:
    """Returns the program that sums the rows of each array, on every device."""
    return _over(mesh, lambda rows: [_sum(row[0]) for row in rows])


@functools.cache
def _gathered(mesh: ReplicaMesh) -> Callable[[list[jax.Array]], list[jax.Array]]:
    return _over(mesh, lambda rows: [jax.lax.all_gather(row[0], AXIS) for row in rows])


def _over(
    mesh: ReplicaMesh, function: Callable[[list[jax.Array]], list[jax.Array]]
) -> Callable[[list[jax.Array]], list[jax.Array]]:
    return jax.jit(
        jax.shard_map(
            function,
            mesh=mesh.mesh,
            in_specs=mesh.split.spec,
            out_specs=mesh.whole.spec,
            check_vma=False,
        )
    )


def _sum(row: jax.Array) -> jax.Array:
    if row.dtype == bool:  # whose sum is true where one of them is
        return jax.lax.psum(row.astype(jnp.int32), AXIS) > 0
    total: jax.Array = jax.lax.psum(row, AXIS)
    return total
