"""Arguments of the verbs of replica functions, compiled and eager."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

import distlab as dl
from tests.misuse.table import row
from tests.misuse.world import World

_context = dl.get_replica_context


@row("ReplicaContext.all_reduce.reduce_op", on_replicas=True)
def _(w: World, v: Any) -> object:
    return _context().all_reduce(v, 1.0)


@row(
    "ReplicaContext.all_reduce.value",
    "none negative fraction nan complex true list empty_list empty_tuple uneven_list dict "
    "scalar_array variable variable_of_other",
    on_replicas=True,
)
def _(w: World, v: Any) -> object:
    return _context().all_reduce("SUM", v)


@row(
    "ReplicaContext.all_gather.value",
    "none empty_list empty_tuple variable variable_of_other",
    tells="negative fraction nan complex true dict scalar_array",
    on_replicas=True,
)
def _(w: World, v: Any) -> object:
    return _context().all_gather(v, axis=0)


@row("ReplicaContext.all_gather.axis", "negative", on_replicas=True)
def _(w: World, v: Any) -> object:
    return _context().all_gather(jnp.ones(2), axis=v)


@row("ReplicaContext.merge_call.merge_fn", users="type", on_replicas=True)
def _(w: World, v: Any) -> object:
    return _context().merge_call(v)


@row(
    "ReplicaContext.merge_call.args",
    "list empty_list empty_tuple uneven_list",
    on_replicas=True,
)
def _(w: World, v: Any) -> object:
    return _context().merge_call(lambda _, *__: 0, args=v)


@row("ReplicaContext.merge_call.kwargs", "none dict", on_replicas=True)
def _(w: World, v: Any) -> object:
    return _context().merge_call(lambda _, **__: 0, kwargs=v)


@row(
    "Variable.assign.in_a_replica_function",
    "list per_replica variable variable_of_other",
    tells="empty_list empty_tuple",
    on_replicas=True,
)
def _(w: World, v: Any) -> object:
    return w.weights.assign(v)


@row("scan.f", users="type function", on_replicas=True)
def _(w: World, v: Any) -> object:
    return dl.scan(v, None, jnp.ones(2))


@row(
    "scan.init",
    "none negative fraction nan complex true list empty_list empty_tuple uneven_list dict "
    "scalar_array key variable variable_of_other",
    on_replicas=True,
)
def _(w: World, v: Any) -> object:
    return dl.scan(lambda carry, x: (carry, x), v, jnp.ones(2))


@row(
    "scan.xs",
    "variable variable_of_other",
    tells="none dict empty_list empty_tuple",
    on_replicas=True,
)
def _(w: World, v: Any) -> object:
    return dl.scan(lambda carry, x: (carry, x), None, v)


@row("scan.length", "none", on_replicas=True)
def _(w: World, v: Any) -> object:
    return dl.scan(lambda carry, x: (carry, x), None, jnp.ones(2), length=v)
