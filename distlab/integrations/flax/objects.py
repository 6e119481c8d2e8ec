"""Flax NNX objects in the arguments of `run`, which a step changes in place as `nnx.jit` does.

A replica gets objects of its own with the arrays of the caller's. Afterwards the arrays must be
the same on all replicas, by kind:

- Totals and counts of metrics that average: the first replica goes on from the totals so far, the
  others from zero, and all are added up. So each example counts once.
- Keys of random streams: each replica draws from the key folded with its number, and the stream
  keeps its own key. With one replica, it draws from the key itself.
- Running statistics (`nnx.BatchStat`): the mean over the replicas, weighted by their examples.
- All others, such as parameters and the state of an optimizer, must come of all-reduced values.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias, final

import jax
import jax.numpy as jnp
from flax import nnx

from distlab.context.replica_context import ReplicaContext, get_replica_context
from distlab.devices.jax_internals import ConcreteArray
from distlab.errors import StructureError
from distlab.step.arguments.in_use import Use
from distlab.step.jaxprs import operations

Kind: TypeAlias = Literal["added", "averaged", "key", "same"]
"""The rule by which the replicas' arrays become one: see the module."""

Path: TypeAlias = tuple[Any, ...]
"""The keys that lead from the tuple of all objects to a variable."""

_SLOT: Final = "_raw_value" if "_raw_value" in nnx.Variable.__slots__ else "raw_value"
"""The attribute of a variable that is its array; its name differs between versions of Flax."""


@final
class NnxObjects:
    """The objects of Flax NNX, for `distlab.step.arguments.in_place`."""

    def is_object(self, value: Any) -> bool:
        """Returns whether a value is a module, an optimizer, a metric, a stream or a variable."""
        kind: Any = type(value)
        return _role(kind) == "object"

    def is_whole(self, value: Any) -> bool:
        """Returns whether a value is such an object, or a state, whose parts are arrays."""
        kind: Any = type(value)
        return _role(kind) is not None

    def __init__(self) -> None:
        self._structures: weakref.WeakValueDictionary[int, NnxStructure]
        self._structures = weakref.WeakValueDictionary()

    def split(
        self, objects: Sequence[Any], use: Use
    ) -> tuple[NnxStructure, list[Any], Callable[[list[Any]], None]]:
        """Returns the objects' structure, their arrays, and what gives them new arrays."""
        nodes = nnx.graph.RefMap()
        graph, flat = nnx.graph.flatten(tuple(objects), ref_index=nodes)
        use.begin(map(id, nodes))
        arrays, state = jax.tree.flatten(list(map(_value, flat.leaves)))
        structure = NnxStructure(graph, state, flat.paths)
        # Programs are found at once by the structure that they were made with.
        with contextlib.suppress(TypeError):  # an attribute has no hash
            known = self._structures.setdefault(hash(structure), structure)
            structure = known if known == structure else structure
        return structure, arrays, functools.partial(_update, objects, structure, flat.leaves)


def _value(leaf: Any) -> Any:
    return leaf.get_raw_value() if isinstance(leaf, nnx.Variable) else leaf


def _update(
    objects: Sequence[Any], structure: NnxStructure, leaves: Sequence[Any], arrays: Sequence[Any]
) -> None:
    """Gives objects new arrays: all of them, if an interrupt comes."""
    plain = len(leaves) == len(arrays) and all(isinstance(leaf, nnx.Variable) for leaf in leaves)
    if plain and all(type(array) is ConcreteArray for array in arrays):
        # In C, where no interrupt comes between two of them.
        deque(map(object.__setattr__, leaves, itertools.repeat(_SLOT), arrays), maxlen=0)
        return
    values = jax.tree.unflatten(structure.state, arrays)
    nnx.update(tuple(objects), nnx.from_flat_state(zip(structure.paths, values, strict=True)))


@functools.cache
def _role(kind: type) -> Literal["object", "state"] | None:
    if issubclass(kind, nnx.Pytree | nnx.Variable):
        return "object"
    return "state" if issubclass(kind, nnx.State) else None


@final
class NnxStructure:
    """The structure of objects: all but the numbers in their arrays."""

    def __init__(self, graph: Any, state: Any, paths: Sequence[Path]) -> None:
        self.graph = graph
        self.state = state
        self.paths = paths
        self._kinds: list[Kind] | None = None
        self._hash: int | None = None

    @functools.cached_property
    def array_paths(self) -> list[Path]:
        """For each array the path of its variable."""
        counts = [child.num_leaves for child in self.state.children()]
        return [path for path, n in zip(self.paths, counts, strict=True) for _ in range(n)]

    @property
    def labels(self) -> list[tuple[int, str]]:
        """For each array the number of its object, and its path in that."""
        return [(path[0], "".join(map(_text, path[1:]))) for path in self.array_paths]

    def enter(self, arrays: Sequence[Any], examples: int | None) -> _Inside:
        """Returns one replica's objects."""
        if self._kinds is None:
            self._kinds = _kinds(self.merged(arrays), self.array_paths)
        return _Inside(self, self._kinds, arrays, examples)

    def merged(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Returns new objects with arrays."""
        values = jax.tree.unflatten(self.state, arrays)
        objects: tuple[Any, ...] = nnx.graph.unflatten(self.graph, values)
        return objects

    def __eq__(self, other: object) -> bool:
        """Returns whether objects are alike but for numbers."""
        if self is other:
            return True
        return isinstance(other, NnxStructure) and (self.graph, self.state) == (
            other.graph,
            other.state,
        )

    def __hash__(self) -> int:
        """Is equal for structures that are alike."""
        if self._hash is None:
            self._hash = hash((self.graph, self.state))
        return self._hash


@final
class _Inside:
    """The objects that one replica changes."""

    def __init__(
        self,
        structure: NnxStructure,
        kinds: list[Kind],
        arrays: Sequence[Any],
        examples: int | None,
    ) -> None:
        self._structure = structure
        self._context: ReplicaContext = get_replica_context()
        self._alone = self._context.num_replicas_in_sync == 1
        self._kinds: list[Kind] = ["same"] * len(kinds) if self._alone else kinds
        self._before = list(arrays)
        self._examples = examples
        self._entered = list(map(self._own, self._kinds, arrays))
        self.objects = structure.merged(self._entered)

    def leave(self) -> list[Any]:
        """Returns the objects' arrays after the function, the same on all replicas."""
        graph, values = nnx.graph.flatten(tuple(self.objects), with_paths=False)
        after, structure = jax.tree.flatten(values)
        if (graph, structure) != (self._structure.graph, self._structure.state):
            raise StructureError(
                "A function that run compiles changes the arrays of Flax NNX objects in place, but "
                "this one changes what they consist of: an attribute that is no array, or it makes "
                "or drops a variable. Do so before the step (model.train(), model.eval(), "
                "nnx.Optimizer(...)), or return the new value."
            )
        changed = [
            not (new is old or (kind == "key" and _is_same_key(new, old)))
            for kind, new, old in zip(self._kinds, after, self._entered, strict=True)
        ]
        by_kind = list(zip(self._kinds, self._before, after, changed, strict=True))
        sums = iter(self._sums(by_kind))
        return [
            next(sums) if kind in ("added", "averaged") and is_new else new if is_new else old
            for kind, old, new, is_new in by_kind
        ]

    def _own(self, kind: Kind, array: Any) -> Any:
        """Returns the array with which this replica enters the function."""
        number = self._context.replica_id_in_sync_group if not self._alone else 0
        if kind == "added":
            return jnp.where(number == 0, array, jnp.zeros_like(array))
        if kind == "key":
            keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(array.reshape(-1), number)
            return keys.reshape(array.shape)
        return array

    def _sums(self, by_kind: Sequence[tuple[Kind, Any, Any, bool]]) -> list[Any]:
        """Returns the new arrays of those kinds that replicas combine, by one all-reduce."""
        combined = [one for one in by_kind if one[0] in ("added", "averaged") and one[3]]
        if not combined:
            return []
        weight = 1 if self._examples is None else self._examples
        own = [
            new if kind == "added" else new * weight if weight else jnp.zeros_like(new)
            for kind, _, new, _ in combined
        ]
        *sums, weights = self._context.all_reduce("SUM", [*own, jnp.float32(weight)])
        return [
            total
            if kind == "added"
            else jnp.where(weights > 0, total / jnp.maximum(weights, 1), old).astype(old.dtype)
            for (kind, old, _, _), total in zip(combined, sums, strict=True)
        ]


def _is_same_key(new: Any, old: Any) -> bool:
    """Returns whether a key is that of before; one that `nnx.jit` returns is another object."""
    if isinstance(new, jax.core.Tracer) or isinstance(old, jax.core.Tracer):
        return operations.handed_on(new) is old
    return new.dtype == old.dtype and new.shape == old.shape and bool((new == old).all())


def _kinds(objects: tuple[Any, ...], paths: Sequence[Path]) -> list[Kind]:
    nodes = dict(nnx.iter_graph(objects))
    totals = {
        id(part)
        for node in nodes.values()
        if isinstance(node, nnx.metrics.Average)
        for part in vars(node).values()
        if isinstance(part, nnx.metrics.MetricState)
    }

    def kind(node: Any) -> Kind:
        if id(node) in totals:
            return "added"
        if isinstance(node, nnx.RngKey):
            return "key"
        return "averaged" if isinstance(node, nnx.BatchStat) else "same"

    return [kind(nodes[path]) for path in paths]


def _text(key: Any) -> str:
    return f".{key}" if isinstance(key, str) else f"[{key}]"
