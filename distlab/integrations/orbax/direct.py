"""Orbax used directly on nests that hold variables, mirrored and per-replica values.

Orbax sees the array inside a per-replica value, with a row for each replica, and can't restore it
on others; a variable has no place to be restored to. So its handlers of nests receive plain
arrays here, of which each is stored once, and what they restore is put where the target is.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from distlab.errors import CheckpointMismatchError
from distlab.integrations.hook import when_imported
from distlab.integrations.orbax.array_kinds import (
    MirroredKind,
    PerReplicaKind,
    VariableKind,
    array_of,
    key_name,
)
from distlab.integrations.orbax.entry import Entry
from distlab.integrations.orbax.kinds import Put
from distlab.integrations.orbax.status import listed

_KINDS = (VariableKind(), MirroredKind(), PerReplicaKind())


def watch_for_orbax() -> None:
    """Prepares Orbax for distlab's values: now if it has been imported, else when it is."""
    when_imported("orbax.checkpoint", "StandardCheckpointHandler", _prepare)


@functools.cache
def _prepare() -> None:
    """Wraps Orbax's handlers of nests, and what makes their arguments."""
    from orbax import checkpoint as orbax
    from orbax.checkpoint import checkpoint_utils

    for handler in (orbax.PyTreeCheckpointHandler, orbax.StandardCheckpointHandler):
        handler.async_save = _saving(handler.async_save)
        handler.restore = _restoring(handler.restore, orbax.RestoreArgs(restore_type=np.ndarray))
    nests = orbax.PyTreeCheckpointHandler
    nests.save = _saving(nests.save)  # the other handler's calls `async_save`
    construct = checkpoint_utils.construct_restore_args
    checkpoint_utils.construct_restore_args = _constructing(construct)


def _saving(save: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method that saves; where it is a coroutine function, the result is its coroutine."""

    @functools.wraps(save)
    def save_ours(self: Any, directory: Any, *others: Any, args: Any = None, **named: Any) -> Any:
        if args is not None and _has_ours(args.item):
            args = dataclasses.replace(
                args, item=_to_save(args.item), save_args=_map(array_of, args.save_args)
            )
        return save(self, directory, *others, args=args, **named)

    return save_ours


def _restoring(restore: Callable[..., Any], as_numpy: Any) -> Callable[..., Any]:
    @functools.wraps(restore)
    def restore_ours(
        self: Any, directory: Any, *others: Any, args: Any = None, **named: Any
    ) -> Any:
        target = getattr(args, "item", None)
        if not _has_ours(target):
            return restore(self, directory, *others, args=args, **named)
        changes = {"item": _to_restore(target)}
        if getattr(args, "restore_args", None) is not None:
            changes["restore_args"] = _numpy_args(target, args.restore_args, as_numpy)
        return _put_back(
            target, restore(self, directory, args=dataclasses.replace(args, **changes))
        )

    return restore_ours


def _constructing(construct: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(construct)
    def construct_restore_args(target: Any, *others: Any, **named: Any) -> Any:
        if _has_ours(target):
            target = _to_restore(target)
        return construct(target, *others, **named)

    return construct_restore_args


def _kind_of(leaf: Any) -> VariableKind | MirroredKind | PerReplicaKind | None:
    return next((kind for kind in _KINDS if kind.accepts(leaf)), None)


def _is_ours(leaf: Any) -> bool:
    return _kind_of(leaf) is not None


def _has_ours(tree: Any) -> bool:
    return any(map(_is_ours, jax.tree.leaves(tree, is_leaf=_is_ours)))


def _map(function: Callable[[Any], Any], tree: Any) -> Any:
    """Maps distlab's values, and leaves everything else as it is."""
    return jax.tree.map(
        lambda leaf: function(leaf) if _is_ours(leaf) else leaf, tree, is_leaf=_is_ours
    )


def _to_save(tree: Any) -> Any:
    def value(leaf: Any) -> Any:
        kind = _kind_of(leaf)
        assert kind is not None
        return kind.saved("", leaf).array

    return _map(value, tree)


def _to_restore(tree: Any) -> Any:
    """Returns abstract arrays in the place of distlab's values."""

    def abstract(leaf: Any) -> jax.ShapeDtypeStruct:
        kind = _kind_of(leaf)
        assert kind is not None
        return jax.ShapeDtypeStruct(*kind.form(leaf))

    return _map(abstract, tree)


def _numpy_args(target: Any, restore_args: Any, as_numpy: Any) -> Any:
    """Returns restore arguments by which distlab's values are read as NumPy arrays."""
    flat = jax.tree.leaves(target, is_leaf=_is_ours)
    given, structure = jax.tree.flatten(_map(array_of, restore_args))
    changed = [as_numpy if _is_ours(leaf) else one for leaf, one in zip(flat, given, strict=True)]
    return jax.tree.unflatten(structure, changed)


def _put_back(target: Any, restored: Any) -> Any:
    """Puts restored arrays where the target's values are; variables are assigned, all or none."""
    paths, structure = jax.tree_util.tree_flatten_with_path(target, is_leaf=_is_ours)
    faults: list[str] = []
    puts: list[Put] = []
    for (path, leaf), value in zip(paths, jax.tree.leaves(restored), strict=True):
        kind = _kind_of(leaf)
        if kind is None:
            puts.append(functools.partial(_same, value))
            continue
        array = np.asarray(value)
        own = kind.own_values(leaf) > 0 and array.ndim > len(kind.form(leaf)[0])
        key = key_name(array_of(leaf))
        entry = Entry("rows" if own else "value", array.shape, str(array.dtype), key)
        fault = kind.fault(leaf, entry)
        if fault:
            faults.append(f"{jax.tree_util.keystr(path)} {fault}")
        else:
            puts.append(kind.placed(leaf, entry, array))
    if faults:
        raise CheckpointMismatchError(
            f"The checkpoint does not fit the target: {listed(faults, '; ')}. Nothing was "
            "restored. Make the target as it was when the checkpoint was saved."
        )
    return jax.tree.unflatten(structure, [put() for put in puts])


def _same(value: Any) -> Any:
    return value
