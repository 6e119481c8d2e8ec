"""Merging the replicas' values into distributed values, and selecting one replica's again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from distlab.devices.mesh import ReplicaMesh
from distlab.errors import StructureError
from distlab.values.checks import is_array_like
from distlab.values.distributed import DistributedValues, PerReplica, stack
from distlab.variables.variable import is_variable
from distlab.variables.variable_copy import VariableCopy


def regroup(nests: Sequence[Any], mesh: ReplicaMesh) -> Any:
    """Merges the replicas' nests into one nest.

    Args:
      nests: One nest for each replica, all of one structure.
      mesh: The replicas' devices.

    Returns:
      The structure with a `PerReplica` at each leaf. A leaf that is the same
      object on all replicas stays that object; with one replica all leaves do.

    Raises:
      StructureError: The structures differ.
    """
    if len(nests) == 1:
        return nests[0]
    structures: list[Any] = [jax.tree.structure(nest, is_leaf=_keep) for nest in nests]
    for structure in structures:
        if structure != structures[0]:
            raise StructureError(
                "All replicas must return the same structure, but one returns "
                f"{structures[0]} and another {structure}. Return the same components on each."
            )
    columns = zip(*(jax.tree.leaves(nest, is_leaf=_keep) for nest in nests), strict=True)
    return jax.tree.unflatten(structures[0], [_merge(column, mesh) for column in columns])


def select(nest: Any, replica: int) -> Any:
    """Returns one replica's components of a nest of distributed values.

    Args:
      nest: Any nest.
      replica: The replica's number.
    """
    return jax.tree.map(
        lambda leaf: leaf.values[replica] if isinstance(leaf, DistributedValues) else leaf,
        nest,
        is_leaf=_keep,
    )


def to_device(nest: Any, device: jax.Device, *, is_leaf: Callable[[Any], bool]) -> Any:
    """Moves the arrays of a nest that are committed to another device.

    Args:
      nest: Any nest.
      device: The device.
      is_leaf: Returns whether a node of the nest is a leaf.
    """
    return jax.tree.map(
        lambda leaf: (
            jax.device_put(leaf, device)
            if isinstance(leaf, jax.Array) and leaf.committed and leaf.devices() != {device}
            else leaf
        ),
        nest,
        is_leaf=is_leaf,
    )


def _merge(column: Sequence[Any], mesh: ReplicaMesh) -> Any:
    first = column[0]
    if all(leaf is first for leaf in column):
        return first
    if isinstance(first, VariableCopy) and tuple(column) == first.variable.values:
        return first.variable
    if all(map(is_array_like, column)):
        kinds = {(np.ndim(leaf), jax.numpy.result_type(leaf)) for leaf in column}
        if len(kinds) == 1:
            return stack(column, mesh)
    objects = np.empty(len(column), dtype=object)
    for replica, leaf in enumerate(column):  # NumPy would make an array of a list
        objects[replica] = leaf
    return PerReplica(objects)


def _keep(value: Any) -> bool:
    return is_variable(value) or isinstance(value, DistributedValues)
