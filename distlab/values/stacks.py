"""Arrays that hold the components of a per-replica value, one row on the device of each replica.

`jax.tree.map` goes into a `PerReplica` and hands its function such an array, which looks like any
other. The verbs must not take it for one.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import NamedSharding

from distlab.devices.jax_internals import ConcreteArray
from distlab.devices.mesh import AXIS
from distlab.errors import ValueShapeError


def remember_equal_rows(array: Any) -> None:
    """Notes that all components of a per-replica value are equal."""
    if type(array) is ConcreteArray:
        array._has_equal_rows = True  # type: ignore[attr-defined]


def has_equal_rows(array: Any) -> bool:
    """Returns whether all components of a per-replica value are known to be equal."""
    return hasattr(array, "_has_equal_rows")


def remember_meant_equal(array: Any) -> None:
    """Notes that a per-replica value is the new one of a state that all replicas received alike."""
    if type(array) is ConcreteArray:
        array._is_meant_equal = True  # type: ignore[attr-defined]


def is_meant_equal(array: Any) -> bool:
    """Returns whether the components should be equal, as far as it is known."""
    return has_equal_rows(array) or hasattr(array, "_is_meant_equal")


def is_stack(array: Any) -> bool:
    """Returns whether an array has a row for each replica, as programs return values of all."""
    if not isinstance(array, jax.Array) or isinstance(array, jax.core.Tracer):
        return False
    sharding = array.sharding
    if not isinstance(sharding, NamedSharding) or sharding.mesh.axis_names[:1] != (AXIS,):
        return False
    rows = sharding.mesh.shape[AXIS]
    return rows > 1 and sharding.spec[:1] == (AXIS,) and array.shape[:1] == (rows,)


def require_no_stack(array: Any, what: str) -> None:
    """Checks that a value is not the array inside a per-replica value."""
    if is_stack(array):
        raise ValueShapeError(
            f"{what} is the array of all components of a per-replica value, {array.dtype}"
            f"{list(array.shape)}: jax.tree.map goes into per-replica values. Use "
            "distlab.nest.map_structure, or jax.tree.map(..., is_leaf=lambda v: isinstance(v, "
            "distlab.DistributedValues)). If it is an array of your own, say what it is: "
            "distlab.PerReplica(array) has a row of it on each replica."
        )
