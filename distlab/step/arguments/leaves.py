"""The arguments of a replica function, and the part of each that a replica receives."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.devices.layouts import PARTS, ROWS, WHOLE, Partition
from distlab.devices.mesh import ReplicaMesh
from distlab.step.arguments.names import StateKey, argument_label, parameter_names
from distlab.step.functions.identity import Static, is_static
from distlab.values.checks import require_components
from distlab.values.distributed import (
    DistributedValues,
    Mirrored,
    PerReplica,
    Shape,
    replica_shapes,
)
from distlab.values.sharded import Sharded
from distlab.values.texts import Texts, are_texts
from distlab.variables.variable import Variable

Role: TypeAlias = Literal["split", "parts", "whole", "static"]
"""A leaf has a component for each replica, is an array divided over the replicas, is the same
array on all, or is no array."""

_PARTITIONS: Final = {"split": ROWS, "parts": PARTS}


class Leaf(NamedTuple):
    """One leaf of the arguments."""

    role: Role
    label: str  # its path, such as `state['w']`
    value: Any = None  # of a static leaf: programs hold no arrays
    shapes: tuple[Shape, ...] = ()  # on each replica
    dtype: Any = None  # None when static
    weak: bool = False  # as the dtype of a Python number
    donated: bool = False  # results may reuse its memory

    @property
    def partition(self) -> Partition:
        """The partition of its global array into the replicas' blocks."""
        return _PARTITIONS.get(self.role, WHOLE)

    def local(self, replica: int) -> jax.ShapeDtypeStruct:
        """Returns its shape and dtype on one replica."""
        return jax.ShapeDtypeStruct(self.shapes[replica], self.dtype, weak_type=self.weak)

    def __str__(self) -> str:
        """Formats it as `name: dtype[shape]`."""
        if self.role == "static":
            return f"{self.label}: {type(self.value).__name__}"
        distinct = list(dict.fromkeys(self.shapes))
        return f"{self.label}: {'|'.join(f'{self.dtype}{list(shape)}' for shape in distinct)}"


@final
class Arguments:
    """The leaves of one call's arguments, and the structure that rebuilds the arguments."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Any,
        kwargs: Any,
        mesh: ReplicaMesh,
        donated: tuple[int, ...] = (),
    ) -> None:
        paths, self._structure = jax.tree_util.tree_flatten_with_path(
            (args, kwargs), is_leaf=_is_distributed
        )
        names = parameter_names(fn, len(args))
        self.leaves = [
            leaf_of(value, argument_label(path, names), mesh)._replace(
                donated=_positional_index(path) in donated
            )
            for path, value in paths
        ]

        self.has_texts = any(type(leaf.value) is Texts for leaf in self.leaves)

    def with_texts(self, result: Any, args: Any, kwargs: Any) -> Any:
        """Returns a result with the texts of a call that the function passed on."""
        given = jax.tree.leaves((args, kwargs), is_leaf=_is_distributed)
        texts = {
            leaf.label: value
            for leaf, value in zip(self.leaves, given, strict=True)
            if type(leaf.value) is Texts
        }
        return jax.tree.map(
            lambda part: texts[repr(part)] if type(part) is Texts else part,
            result,
            is_leaf=_is_distributed,
        )

    def dynamic(self) -> list[Leaf]:
        """Returns the leaves that are arrays."""
        return [leaf for leaf in self.leaves if leaf.role != "static"]

    def over(self, replicas: int) -> Arguments:
        """Returns arguments of so many replicas, each with what the first receives."""
        new = copy.copy(self)
        new.leaves = [leaf._replace(shapes=leaf.shapes[:1] * replicas) for leaf in self.leaves]
        return new

    def numbers(self) -> list[str]:
        """Returns the labels of the leaves that are Python numbers, or as one."""
        return [leaf.label for leaf in self.leaves if leaf.weak and not any(leaf.shapes)]

    def examples(self, replica: int) -> int | None:
        """Returns the number of a replica's examples: rows of its part; None without parts."""
        for leaf in self.leaves:
            if leaf.partition is not WHOLE and leaf.shapes[replica]:
                return leaf.shapes[replica][0]
        return None

    def explain_replica(self, error: Exception, replica: int) -> None:
        """Adds to an error which replica's shapes led to it, where shapes differ."""
        received = [
            f"{leaf.label}: {leaf.dtype}{list(leaf.shapes[replica])}"
            for leaf in self.leaves
            if len(set(leaf.shapes)) > 1
        ]
        remedy = (
            " A replica without examples runs the step, too: the function must work for empty "
            "arrays (in reshape, sizes instead of -1)."
        )
        if received:
            empty = remedy if self.examples(replica) == 0 else ""
            error.add_note(f"Replica {replica} receives {', '.join(received)}.{empty}")

    def build(self, arrays: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns `(args, kwargs)` with these arrays as the dynamic leaves."""
        rest = iter(arrays)
        leaves = [leaf.value if leaf.role == "static" else next(rest) for leaf in self.leaves]
        args, kwargs = jax.tree.unflatten(self._structure, leaves)
        return args, kwargs


def _is_distributed(value: Any) -> bool:
    return isinstance(value, DistributedValues | Variable)


def leaf_of(value: Any, label: str, mesh: ReplicaMesh) -> Leaf:
    """Returns a leaf of arguments."""
    if are_texts(value.stacked if isinstance(value, PerReplica) else value):
        return Leaf("static", label, Texts(label))  # of several workers, those of this one
    if isinstance(value, PerReplica):
        stacked = value.stacked
        require_components(value, label, mesh.replicas)
        # Of batches left on the host, the dtype that they will have on devices.
        dtype = stacked.dtype if isinstance(stacked, jax.Array) else jnp.result_type(stacked)
        return Leaf("split", label, None, replica_shapes(value), dtype)
    if isinstance(value, Sharded):
        array = value.array
        part = array.sharding.shard_shape(array.shape)
        return Leaf("parts", label, None, (part,) * mesh.replicas, array.dtype)
    if isinstance(value, Mirrored):
        value = value.array
    if isinstance(value, Static):
        return Leaf("static", label, value.value)
    if is_static(value):
        return Leaf("static", label, value)
    shape = np.shape(value)
    if isinstance(value, jax.Array):
        weak, dtype = bool(value.aval.weak_type), value.dtype
    else:
        weak = not hasattr(value, "dtype")
        dtype = jnp.result_type(value)
    return Leaf("whole", label, None, (shape,) * mesh.replicas, dtype, weak)


def _positional_index(path: tuple[Any, ...]) -> int | None:
    """Returns the index of a leaf's positional argument; None for a named one."""
    if isinstance(path[-1], StateKey):
        return path[-1].argument
    kind, first, *_ = path
    return first.idx if kind.idx == 0 else None
