"""Arrays that hold the components of a per-replica value.

`jax.tree.map` goes into a `PerReplica` and hands its function the array of all components,
which looks like any other array. The verbs must not take it for one.
"""

from __future__ import annotations

import weakref
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from distlab.devices.jax_internals import ConcreteArray
from distlab.devices.mesh import AXIS
from distlab.errors import ValueShapeError

_others: dict[int, weakref.ref[Any]] = {}
"""Arrays that take no attribute: tracers and NumPy arrays."""


def remember(array: Any) -> None:
    """Notes that an array holds the components of a per-replica value."""
    if type(array) is ConcreteArray:
        array._is_stack = True  # type: ignore[attr-defined]  # five times faster than a table
    elif isinstance(array, jax.Array | np.ndarray):
        key = id(array)

        def forget(dead: weakref.ref[Any]) -> None:
            if _others.get(key) is dead:
                del _others[key]

        _others[key] = weakref.ref(array, forget)


def remembered(array: Any) -> Any:
    """Returns an array that is noted to hold the components of a per-replica value."""
    remember(array)
    return array


def remember_equal_rows(array: Any) -> None:
    """Notes that all components of a per-replica value are equal."""
    if type(array) is ConcreteArray:
        array._has_equal_rows = True  # type: ignore[attr-defined]


def has_equal_rows(array: Any) -> bool:
    """Returns whether all components of a per-replica value are known to be equal."""
    return hasattr(array, "_has_equal_rows")


def is_stack(array: Any) -> bool:
    """Returns whether an array holds the components of a per-replica value, or looks like it.

    One row on the device of each replica is how programs return per-replica values.
    """
    if type(array) is ConcreteArray:
        return hasattr(array, "_is_stack") or _has_row_per_replica(array)
    known = _others.get(id(array))
    return known is not None and known() is array


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


def _has_row_per_replica(array: jax.Array) -> bool:
    sharding = array.sharding
    if not isinstance(sharding, NamedSharding) or sharding.mesh.axis_names != (AXIS,):
        return False
    spec = (*sharding.spec, *[None] * array.ndim)[: array.ndim]
    rows = sharding.mesh.size
    return rows > 1 and spec[:1] == (AXIS,) and array.shape[0] == rows
