"""Concatenation of per-replica values in cross-replica context."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp

from distlab.collectives.host import CollectiveHost
from distlab.collectives.reducing import calls, report
from distlab.collectives.rows import copies_of, on_first_device
from distlab.collectives.shapes import gather_axis, require_joinable
from distlab.collectives.traced import TracedPerReplica
from distlab.context import scopes
from distlab.devices import in_flight, jax_internals
from distlab.errors import ValueShapeError
from distlab.processes.boundary import verb
from distlab.values.checks import (
    as_array,
    require_alive,
    require_components,
    require_value,
    way_to_components,
)
from distlab.values.distributed import DistributedValues, PerReplica, replica_shapes
from distlab.values.sharded import as_per_replica
from distlab.variables.variable import Variable


@verb
def gather(strategy: CollectiveHost, value: Any, axis: int) -> Any:
    """Concatenates the components of per-replica values. See `Strategy.gather`."""
    scopes.require_cross_replica("gather", strategy)
    in_flight.require_not_forked()
    in_flight.require_open()
    require_value(value, "gather")
    return jax.tree.map(
        lambda leaf: _gather_leaf(strategy, leaf, axis),
        value,
        is_leaf=lambda v: isinstance(v, DistributedValues),
    )


def _gather_leaf(strategy: CollectiveHost, value: Any, axis: int) -> jax.Array:
    started = time.monotonic_ns()
    if isinstance(value, TracedPerReplica):
        return value.collectives.all_gather([value.local], axis)[0]
    if isinstance(value, Variable):
        if value.storage.layout.one_copy or strategy.num_replicas_in_sync == 1:
            return value.value()
        value = copies_of(value, strategy.mesh)
    value = as_per_replica(value, strategy.mesh, "The value to gather")
    if not isinstance(value, PerReplica):
        if strategy.num_replicas_in_sync > 1:
            raise ValueShapeError(
                f"gather needs a per-replica value, got a plain {type(value).__name__}: it is the "
                f"same on all {strategy.num_replicas_in_sync} replicas. {way_to_components(value)}."
            )
        array = as_array(value, "gather")
        gather_axis(array.shape, axis, "gather")
        return array
    require_alive(value.stacked, "The value to gather")
    require_components(value, "The value to gather", strategy.num_replicas_in_sync)
    shapes = replica_shapes(value)
    along = gather_axis(shapes[0], axis, "gather")
    require_joinable(shapes, along, "gather")
    traced = isinstance(value.stacked, jax.core.Tracer)
    parts = value.values if traced else on_first_device(value, strategy.mesh)
    gathered: jax.Array = jax_internals.uncommitted(jnp.concatenate(parts, axis=along))
    report(
        strategy,
        "gather",
        "",
        "all_gather" if strategy.mesh.shared else "to_one_device",
        stacked=value.stacked,
        started=started,
        call=next(calls),
    )
    return gathered
