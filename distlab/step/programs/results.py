"""Merging the replicas' values into distributed values, and selecting one replica's again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from distlab.devices.jax_internals import plain
from distlab.devices.key_data import bits
from distlab.devices.mesh import ReplicaMesh
from distlab.errors import StructureError
from distlab.processes import group
from distlab.step.arguments.names import Declared, declared
from distlab.values.checks import declared_array, is_array_like
from distlab.values.distributed import DistributedValues, Mirrored, PerReplica, stack, stack_to
from distlab.variables.variable import is_variable
from distlab.variables.variable_copy import VariableCopy


def regroup(nests: Sequence[Any], mesh: ReplicaMesh, *, wrap: bool = False) -> Any:
    """Merges the replicas' nests into one nest."""
    if mesh.replicas == 1:
        return undeclared(nests[0])
    structures: list[Any] = [jax.tree.structure(nest, is_leaf=_keep) for nest in nests]
    for structure in structures:
        if structure != structures[0]:
            same = str(structure) == str(structures[0])  # of classes with one name
            raise StructureError(
                "All replicas must return the same structure, but one returns "
                f"{structures[0]} and another {structure}"
                f"{' of another class' * same}. Return the same components on each"
                f"{', of a class that is defined outside of the function' * same}."
            )
    paths, _ = jax.tree_util.tree_flatten_with_path(nests[0], is_leaf=_keep)
    columns = zip(*(jax.tree.leaves(nest, is_leaf=_keep) for nest in nests), strict=True)
    names = [declared(path) for path, _ in paths]
    if mesh.shared:
        merged = _merge_with_others(list(columns), names, mesh, wrap=wrap)
    else:
        merged = [
            _merge(column, name, mesh, wrap=wrap)
            for column, name in zip(columns, names, strict=True)
        ]
    return jax.tree.unflatten(structures[0], merged)


def undeclared(nest: Any) -> Any:
    """Returns the nest of a strategy's only replica, with plain arrays for `Mirrored` values."""
    if not any(type(leaf) is Mirrored for leaf in jax.tree.leaves(nest, is_leaf=_keep)):
        return nest  # the object itself
    return jax.tree.map(
        lambda leaf: declared_array(leaf, "result") if type(leaf) is Mirrored else leaf,
        nest,
        is_leaf=_keep,
    )


def own_arrays(nests: Iterable[Any]) -> list[Any]:
    """Returns nests with copies of NumPy's arrays, each made before the next nest is.

    So a function may fill the same array for each replica. What it leaves as it was is one copy.
    """
    known: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray) or not is_array_like(leaf):
            return leaf
        given, copied = known.get(id(leaf), (None, None))
        if given is not leaf or copied is None or bits(copied) != bits(leaf):
            copied = leaf.copy()
            known[id(leaf)] = leaf, copied
        return copied

    return [jax.tree.map(own, nest, is_leaf=_keep) for nest in nests]


def select(nest: Any, replica: int) -> Any:
    """Returns one replica's components of a nest of distributed values."""
    return jax.tree.map(
        lambda leaf: leaf.component(replica) if isinstance(leaf, DistributedValues) else leaf,
        nest,
        is_leaf=_keep,
    )


def to_device(nest: Any, device: jax.Device, *, is_leaf: Callable[[Any], bool]) -> Any:
    """Moves the arrays of a nest that are committed to another device."""
    return jax.tree.map(
        lambda leaf: (
            jax.device_put(leaf, device)
            if isinstance(leaf, jax.Array) and leaf.committed and leaf.devices() != {device}
            else leaf
        ),
        nest,
        is_leaf=is_leaf,
    )


def _is_one(column: Sequence[Any], *, wrap: bool) -> bool:
    """Returns whether all replicas have the same object, which they keep."""
    first = column[0]
    keeps = not wrap or isinstance(first, DistributedValues) or is_variable(first)
    return keeps and all(leaf is first for leaf in column)


def _can_be_stacked(leaf: Any) -> bool:
    """Returns whether a number or array can lie on devices; others stay objects."""
    if isinstance(leaf, jax.Array):
        return not isinstance(leaf, jax.core.Tracer) and not leaf.is_deleted()
    most = np.iinfo(jax.dtypes.canonicalize_dtype(np.int64)).max
    return not isinstance(leaf, int) or -most <= leaf <= most


def _merge(column: Sequence[Any], name: Declared, mesh: ReplicaMesh, *, wrap: bool) -> Any:
    first = column[0]
    if _is_one(column, wrap=wrap):
        return first
    if any(type(leaf) is Mirrored for leaf in column):
        return _mirrored(column, name, mesh)
    if isinstance(first, VariableCopy) and tuple(column) == first.variable.values:
        return first.variable
    arrays = all(map(is_array_like, column)) and (not wrap or all(map(_can_be_stacked, column)))
    if arrays and len(set(map(jax.numpy.result_type, column))) == 1:
        return stack(column, mesh)
    return PerReplica(_objects(column))


def _merge_with_others(
    columns: list[tuple[Any, ...]], names: list[Declared], mesh: ReplicaMesh, *, wrap: bool
) -> list[Any]:
    """Merges leaves where other processes have replicas, too: all exchange what they have."""
    processes = group.current()
    assert processes is not None
    labels = [name.label for name in names]
    own = [
        labels,
        [
            _described(column, name, mesh, wrap=wrap)
            for column, name in zip(columns, names, strict=True)
        ],
    ]
    received = [json.loads(text) for text in processes.exchange("results", json.dumps(own))]
    for worker, (theirs, _) in zip(processes.workers, received, strict=True):
        if theirs != labels:
            raise StructureError(
                f"All workers must return the same structure, but {processes.worker.name} returns "
                f"{labels} and {worker.name} returns {theirs}. Return the same components on each."
            )
    of_all = zip(*(described for _, described in received), strict=True)
    return [
        _merged_with_others(column, name, parts, mesh)
        for column, name, parts in zip(columns, names, of_all, strict=True)
    ]


def _described(
    column: Sequence[Any], name: Declared, mesh: ReplicaMesh, *, wrap: bool
) -> dict[str, Any]:
    """Returns what the other processes must know of one leaf."""
    if any(type(leaf) is Mirrored for leaf in column):
        array = _same_array(column, name, mesh)
        digest = hashlib.sha256(bits(array)).hexdigest()
        return {"mirrored": [str(array.dtype), list(array.shape), digest]}
    first = column[0]
    described: dict[str, Any] = {}
    if _is_one(column, wrap=wrap) and (len(column) > 1 or _is_fixed(first)):
        described["same"] = repr(first) if _is_fixed(first) else "an object"
    arrays = all(map(is_array_like, column)) and not any(map(is_variable, column))
    if arrays and (not wrap or all(map(_can_be_stacked, column))):
        kinds = [(str(jax.numpy.result_type(leaf)), list(np.shape(leaf))) for leaf in column]
        if len({dtype for dtype, _ in kinds}) == 1:
            described["arrays"] = kinds
    return described


def _merged_with_others(
    column: Sequence[Any], name: Declared, parts: Sequence[dict[str, Any]], mesh: ReplicaMesh
) -> Any:
    """Merges one leaf, from what all processes said of it."""
    first = column[0]
    if any("mirrored" in part for part in parts):
        if any(part != parts[0] for part in parts):
            raise StructureError(
                name.refusal(f"workers have {[part.get('mirrored', 'another') for part in parts]}")
            )
        return Mirrored(mesh.put_whole(_same_array(column, name, mesh)))
    if isinstance(first, VariableCopy) and tuple(column) == first.variable.values:
        return first.variable
    if "same" in parts[0] and all(part.get("same") == parts[0]["same"] for part in parts):
        return first
    if all("arrays" in part for part in parts):
        kinds = [kind for part in parts for kind in part["arrays"]]
        if len({dtype for dtype, _ in kinds}) == 1:
            shapes = tuple(tuple(shape) for _, shape in kinds)
            return stack_to([jax.numpy.asarray(leaf) for leaf in column], shapes, mesh)
    return PerReplica(_objects(column))


def _is_fixed(leaf: Any) -> bool:
    """Returns whether a leaf is the same in two processes when its text is."""
    return leaf is None or isinstance(leaf, bool | int | float | complex | str | bytes)


def _objects(column: Sequence[Any]) -> np.ndarray:
    objects = np.empty(len(column), dtype=object)
    for replica, leaf in enumerate(column):  # NumPy would make an array of a list
        objects[replica] = leaf
    return objects


def _mirrored(column: Sequence[Any], name: Declared, mesh: ReplicaMesh) -> Mirrored:
    """Returns one mirrored value of those that the replicas declare to be the same."""
    _same_array(column, name, mesh)
    copies = [
        jax.device_put(declared_array(leaf, name.label), device)
        for leaf, device in zip(column, mesh.local_devices, strict=True)
    ]
    return Mirrored(jax.make_array_from_single_device_arrays(copies[0].shape, mesh.whole, copies))


def _same_array(column: Sequence[Any], name: Declared, mesh: ReplicaMesh) -> jax.Array:
    """Returns the first of the arrays that the local replicas declare to be the same."""
    if not all(type(leaf) is Mirrored for leaf in column):
        raise StructureError(
            f"All replicas must return the same structure, but only some return {name.label} as "
            "Mirrored. Return it so on each."
        )
    arrays = [declared_array(leaf, name.label) for leaf in column]
    first = arrays[0]
    for replica, array in enumerate(arrays):
        if (array.dtype, array.shape) != (first.dtype, first.shape) or bits(array) != bits(first):
            raise StructureError(
                name.refusal(
                    f"replica {mesh.local_replicas[replica]} has {_numbers(array)} and replica "
                    f"{mesh.local_replicas[0]} has {_numbers(first)}"
                )
            )
    return first


def _numbers(array: jax.Array) -> str:
    numbers = np.asarray(plain(array)).ravel()[:4].tolist()
    return f"{array.dtype}{list(array.shape)} of {numbers}"


def _keep(value: Any) -> bool:
    return is_variable(value) or isinstance(value, DistributedValues)
