"""Values of the replicas combined in one variable, by its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from distlab.context import scopes
from distlab.context.collectives import Collectives
from distlab.context.replica_context import ReplicaContext, get_replica_context
from distlab.devices import in_flight
from distlab.devices.combining import all_rows
from distlab.devices.pieces import moved
from distlab.errors import ValueShapeError
from distlab.processes.boundary import verb
from distlab.text.shown import shown
from distlab.values.checks import require_components
from distlab.values.distributed import DistributedValues, Mirrored, PerReplica
from distlab.values.operators import ArrayOperators
from distlab.values.reduce_op import ReduceOp
from distlab.variables import frames, scattering
from distlab.variables.kinds import VariableAggregation
from distlab.variables.protocol import StoredVariable
from distlab.variables.scattering import Rows


def made_once(make: Callable[[], Any], name: str) -> Any:
    """Makes one object for all replicas when a replica function makes it."""
    merging = scopes.merging()
    if merging is not None:
        return merging.create(make, name)
    if scopes.in_cross_replica_context() or not scopes.current_strategy().distributed:
        return make()
    return get_replica_context().collectives.create(make, name)


def makes_again() -> bool:
    """Returns whether a compiled function is traced again, so that it must make nothing to keep."""
    if frames.is_eager() or scopes.in_cross_replica_context():
        return False
    return not getattr(get_replica_context().collectives, "may_make", True)


def assigned(
    variable: StoredVariable, operand: Any, array: jax.Array, verb: str, context: ReplicaContext
) -> jax.Array:
    """Returns the value for this replica's copy when every replica assigns one."""
    if context.num_replicas_in_sync == 1:
        return array
    if not variable.strategy.distributed:
        return in_turn(variable, array, verb, context)
    if variable.aggregation is VariableAggregation.NONE:
        _require_copies(variable, verb, context)
        return array
    number = type(operand) in {bool, int, float, complex}
    if variable.aggregation is VariableAggregation.SUM and (
        number or _is_mirrored(operand) or context.collectives.is_same(operand)
    ):
        what = "a Python number" if number else "a value from outside of the replica function"
        raise ValueShapeError(
            f"{variable.name}.{verb}({shown(operand)}): {what} is the same on all "
            "replicas, so its SUM is ambiguous. Pass an array that each replica computes, such as "
            "jnp.asarray(number), or use aggregation MEAN."
        )
    if number and not context.collectives.differ(operand):
        first = context.collectives.first
        return first(array) if variable.storage.layout.one_copy else array
    return aggregate(variable, array, context.collectives, verb)


def assigned_rows(variable: StoredVariable, rows: Rows, context: ReplicaContext) -> Rows:
    """Returns the rows for this replica's copy when every replica assigns some."""
    replicas = context.num_replicas_in_sync
    if replicas == 1:
        return rows
    if not variable.strategy.distributed:
        if frames.is_eager():
            return rows  # eager replicas assign it one after another
        return scattering.aggregated(rows, VariableAggregation.SUM, context.collectives, replicas)
    if variable.aggregation is VariableAggregation.NONE:
        _require_copies(variable, "scatter", context)
        return rows
    return scattering.aggregated(rows, variable.aggregation, context.collectives, replicas)


def in_turn(
    variable: StoredVariable, array: jax.Array, verb: str, context: ReplicaContext
) -> jax.Array:
    """Returns what to assign after each replica has assigned one copy, one after another."""
    if frames.is_eager():
        return array  # eager replicas assign it one after another
    collectives = context.collectives
    total = collectives.last(array) if verb == "assign" else collectives.sum_on_worker(array)
    return total.astype(variable.dtype)


def aggregate(
    variable: StoredVariable, array: jax.Array, collectives: Collectives, verb: str
) -> jax.Array:
    """Returns the replicas' values as one, by the variable's aggregation."""
    if variable.aggregation is VariableAggregation.NONE:
        raise ValueShapeError(_no_common_value(variable.name, verb))
    if variable.aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
        return collectives.first(array)
    _require_sum(variable, verb)
    (reduced,) = collectives.all_reduce(ReduceOp[variable.aggregation.name], [array])
    return reduced.astype(variable.dtype)


def value_of_each_copy(variable: StoredVariable, array: jax.Array, verb: str) -> jax.Array:
    """Returns the value of each copy for a value assigned in cross-replica context."""
    if not variable.on_read or variable.aggregation is not VariableAggregation.SUM:
        return array
    if verb != "assign":
        raise ValueShapeError(
            f"{variable.name}.{verb} outside of a replica function is not defined for ON_READ "
            "with SUM: it does not name a copy. Use assign, which divides the value."
        )
    _require_sum(variable, verb)
    return (array / variable.strategy.num_replicas_in_sync).astype(variable.dtype)


@verb
def aggregated_copies(variable: StoredVariable) -> jax.Array:
    """Returns the copies of an ON_READ variable as one value, on the first local device."""
    if variable.aggregation is VariableAggregation.NONE:
        raise ValueShapeError(_no_common_value(variable.name, "read_value"))
    _require_sum(variable, "read_value")
    in_flight.require_not_forked()
    mesh = variable.strategy.mesh
    if variable.aggregation is VariableAggregation.ONLY_FIRST_REPLICA and mesh.shared:
        return variable.storage.first()
    if mesh.shared:
        (rows,) = all_rows([variable.storage.alive()], mesh)
    else:
        rows = moved(variable.storage.alive(), mesh.first)
    if variable.aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
        return jax.lax.index_in_dim(rows, 0, keepdims=False)  # its number is no transfer
    if variable.aggregation is VariableAggregation.SUM:
        return jnp.sum(rows, axis=0, dtype=rows.dtype)  # without it, JAX can't sum int4
    return jnp.mean(rows, axis=0).astype(variable.dtype)


def require_own_copies(variable: StoredVariable, value: DistributedValues, verb: str) -> None:
    """Checks that a distributed value has a component for each copy of a variable."""
    if isinstance(value, Mirrored):
        return
    if variable.on_read or variable.storage.layout.one_copy:
        kind = "is ON_READ" if variable.on_read else "has one copy for all replicas"
        raise ValueShapeError(
            f"{variable.name} {kind}, so {verb} of {shown(value)} in cross-replica context does "
            "not say which value to take. Reduce it first, or assign it in a replica function."
        )
    if isinstance(value, PerReplica):
        replicas = variable.strategy.num_replicas_in_sync
        require_components(value, f"The value of {variable.name}.{verb}", replicas)


def _require_copies(variable: StoredVariable, verb: str, context: ReplicaContext) -> None:
    if variable.storage.layout.one_copy:
        raise ValueShapeError(
            f"{variable.name} has one copy for {context.num_replicas_in_sync} replicas and no "
            f"aggregation, so {verb} in a replica function has no meaning. Make it with an "
            "aggregation."
        )


def _require_sum(variable: StoredVariable, verb: str) -> None:
    """Checks that the replicas' values have a sum where the aggregation is one."""
    if variable.dtype == bool and variable.aggregation is VariableAggregation.SUM:
        raise ValueShapeError(
            f"{variable.name} holds truth values, which have no SUM, so {verb} can't make one "
            "value of those of the replicas. Use aggregation ONLY_FIRST_REPLICA, or a variable of "
            "int32, whose SUM counts them."
        )


def _is_mirrored(operand: Any) -> bool:
    layout = getattr(getattr(operand, "storage", None), "layout", None)
    return isinstance(operand, ArrayOperators) and layout is not None and not layout.copies_differ


def _no_common_value(name: str, verb: str) -> str:
    return (
        f"{name} has a copy of its own on each replica and aggregation NONE, so {verb} has no "
        "common value. Read it in a replica function, or give it an aggregation."
    )
