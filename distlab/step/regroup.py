"""Putting the replicas' values together into one distributed value."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Merges what each replica has into one nest.

    Args:
      nests: one for each replica, all of one structure.
      mesh: where the replicas are.

    Returns:
      The structure with a `PerReplica` at each leaf. What is the same object
      on all replicas stays that object; with one replica all leaves do.

    Raises:
      StructureError: the structures differ.
    """
    if len(nests) == 1:
        return nests[0]
    structures: list[Any] = [jax.tree.structure(nest, is_leaf=_keep) for nest in nests]
    for structure in structures:
        if structure != structures[0]:
            raise StructureError(
                "All replicas must give the same structure, but one gives "
                f"{structures[0]} and another {structure}."
            )
    columns = zip(*(jax.tree.leaves(nest, is_leaf=_keep) for nest in nests), strict=True)
    return jax.tree.unflatten(structures[0], [_merge(column, mesh) for column in columns])


def select(nest: Any, replica: int) -> Any:
    """Returns what one replica gets of a nest of distributed values.

    Args:
      nest: any nest.
      replica: the replica's number.
    """
    return jax.tree.map(
        lambda leaf: leaf.values[replica] if isinstance(leaf, DistributedValues) else leaf,
        nest,
        is_leaf=_keep,
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
    for replica, leaf in enumerate(column):  # one by one: NumPy takes a list apart
        objects[replica] = leaf
    return PerReplica(objects)


def _keep(value: Any) -> bool:
    return is_variable(value) or isinstance(value, DistributedValues)
