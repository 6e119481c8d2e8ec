"""Nests of values, with the names and meaning of `tf.nest`.

A nest is a list, tuple, named tuple, dict or other mapping, or any class that is registered with
JAX as a pytree, of nests. Everything else is a leaf: arrays, numbers, strings and None, and, other
than for `jax.tree`, distributed values and variables. So a function that is mapped over the result
of `Strategy.run` receives each `PerReplica`, not the array inside it.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax

from distlab.errors import StructureError, ValueShapeError
from distlab.text.shown import shown
from distlab.values.distributed import DistributedValues, Mirrored, PerReplica, rebuilt
from distlab.variables.variable import is_variable

__all__ = [
    "assert_same_structure",
    "flatten",
    "is_nested",
    "map_structure",
    "pack_sequence_as",
]


def is_nested(structure: Any) -> bool:
    """Returns whether a value is a nest, and not a leaf (`tf.nest.is_nested`).

    Args:
      structure: Any value.

    Example:
      >>> import distlab as dl
      >>> dl.nest.is_nested([1, 2]), dl.nest.is_nested("ab"), dl.nest.is_nested(None)
      (True, False, False)
    """
    return _node(structure, composites=False) is not None


def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """Returns the leaves of a nest, those of a mapping in the order of its sorted keys.

    Args:
      structure: A nest, or a leaf.
      expand_composites: Whether the components of distributed values are leaves.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> results = strategy.run(lambda x: {"loss": x, "count": (1, None)}, args=(2.0,))
      >>> [type(leaf).__name__ for leaf in dl.nest.flatten(results)]
      ['int', 'NoneType', 'PerReplica']
    """
    return list(_leaves(structure, composites=expand_composites))


def map_structure(
    func: Callable[..., Any],
    *structures: Any,
    check_types: bool = True,
    expand_composites: bool = False,
) -> Any:
    """Returns the first nest with `func` of the leaves of all nests instead of its leaves.

    Args:
      func: A function of one leaf of each nest.
      *structures: Nests of the same structure.
      check_types: Whether the types must be the same, too: a list is no tuple.
      expand_composites: Whether the components of distributed values are leaves.

    Raises:
      ValueShapeError: The structures differ.
      StructureError: The types differ.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> results = strategy.run(lambda x: {"loss": x, "error": x / 2}, args=(2.0,))
      >>> means = dl.nest.map_structure(
      ...     lambda value: float(strategy.reduce("MEAN", value, axis=None)), results
      ... )
      >>> means
      {'error': 1.0, 'loss': 2.0}
    """
    first, *others = structures
    for other in others:
        _require_same(first, other, "", types=check_types, composites=expand_composites)
    columns = zip(*(_leaves(s, composites=expand_composites) for s in structures), strict=True)
    results = [func(*column) for column in columns]
    return _packed(first, iter(results), composites=expand_composites)


def pack_sequence_as(
    structure: Any, flat_sequence: Sequence[Any], expand_composites: bool = False
) -> Any:
    """Returns a nest with the leaves of a list, in the order of `flatten`.

    Args:
      structure: The nest whose structure the result has.
      flat_sequence: The leaves.
      expand_composites: Whether the components of distributed values are leaves.

    Raises:
      ValueShapeError: The structure has another number of leaves.

    Example:
      >>> import distlab as dl
      >>> dl.nest.pack_sequence_as({"a": 0, "b": (0, 0)}, [1, 2, 3])
      {'a': 1, 'b': (2, 3)}
    """
    count = sum(1 for _ in _leaves(structure, composites=expand_composites))
    if count != len(flat_sequence):
        raise ValueShapeError(
            f"The structure has {count} leaves and flat_sequence {len(flat_sequence)}. Pass one "
            f"leaf for each; the structure is {shown(structure, 200)}."
        )
    return _packed(structure, iter(flat_sequence), composites=expand_composites)


def assert_same_structure(
    nest1: Any, nest2: Any, check_types: bool = True, expand_composites: bool = False
) -> None:
    """Checks that two nests have the same structure (`tf.nest.assert_same_structure`).

    Args:
      nest1: A nest.
      nest2: Another one.
      check_types: Whether the types must be the same, too: a list is no tuple.
      expand_composites: Whether the components of distributed values are leaves.

    Raises:
      ValueShapeError: The structures differ.
      StructureError: The types differ.

    Example:
      >>> import distlab as dl
      >>> dl.nest.assert_same_structure({"a": 1}, {"a": "x"})
      >>> dl.nest.assert_same_structure([1, 2], (1, 2), check_types=False)
    """
    _require_same(nest1, nest2, "", types=check_types, composites=expand_composites)


class _Node(NamedTuple):
    """One level of a nest, its children by keys, names or numbers, and what builds it of others."""

    keys: list[Any]
    children: list[Any]
    build: Callable[[list[Any]], Any]


_ATOMS: Final = (str, bytes, type(None), int, float, complex)


def _node(value: Any, *, composites: bool) -> _Node | None:
    """Returns the outermost level of a nest; None for a leaf."""
    if isinstance(value, DistributedValues):
        return _components(value) if composites else None
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _Node(list(value._fields), list(value), lambda parts: type(value)(*parts))
    if isinstance(value, list | tuple):
        return _numbered(value, type(value))
    if isinstance(value, _ATOMS) or is_variable(value):
        return None
    return _registered(value)


def _components(value: DistributedValues) -> _Node | None:
    if not isinstance(value, PerReplica | Mirrored):
        return None
    return _numbered(value.values, functools.partial(rebuilt, value))


def _numbered(children: Sequence[Any], build: Callable[[list[Any]], Any]) -> _Node:
    return _Node(list(range(len(children))), list(children), build)


def _registered(value: Any) -> _Node | None:
    """Returns one level of a pytree of a class that JAX knows; None if it is none."""
    children, structure = jax.tree.flatten(
        value, is_leaf=lambda part: part is None or part is not value
    )
    if jax.tree_util.treedef_is_leaf(structure):
        return None
    return _numbered(children, lambda parts: jax.tree.unflatten(structure, parts))


def _mapping(value: Mapping[Any, Any]) -> _Node:
    keys = sorted(value)

    def build(parts: list[Any]) -> Any:
        by_key = dict(zip(keys, parts, strict=True))
        items = {key: by_key[key] for key in value}  # no pairs, which a Counter would count
        if isinstance(value, defaultdict):
            return type(value)(value.default_factory, items)
        return type(value)(items)  # type: ignore[call-arg]

    return _Node(keys, [value[key] for key in keys], build)


def _leaves(value: Any, *, composites: bool) -> Iterator[Any]:
    node = _node(value, composites=composites)
    if node is None:
        yield value
        return
    for child in node.children:
        yield from _leaves(child, composites=composites)


def _packed(value: Any, leaves: Iterator[Any], *, composites: bool) -> Any:
    node = _node(value, composites=composites)
    if node is None:
        return next(leaves)
    return node.build([_packed(child, leaves, composites=composites) for child in node.children])


def _require_same(one: Any, other: Any, path: str, *, types: bool, composites: bool) -> None:
    first, second = (_node(value, composites=composites) for value in (one, other))
    if first is None and second is None:
        return
    if first is None or second is None:
        leaf, nest = (one, other) if first is None else (other, one)
        raise ValueShapeError(
            f"The structures differ{_at(path)}: one has a {type(nest).__name__}, the other the "
            f"leaf {shown(leaf)}. Pass nests of one structure."
        )
    mappings = isinstance(one, Mapping) and isinstance(other, Mapping)
    if types and type(one) is not type(other) and not mappings:
        raise StructureError(
            f"The types differ{_at(path)}: {type(one).__name__} and {type(other).__name__}. Pass "
            "nests of the same types, or check_types=False."
        )
    if first.keys != second.keys if mappings else len(first.keys) != len(second.keys):
        raise ValueShapeError(
            f"The structures differ{_at(path)}: one has {shown(first.keys, 100)}, the other "
            f"{shown(second.keys, 100)}. Pass nests of one structure."
        )
    for key, a, b in zip(first.keys, first.children, second.children, strict=True):
        _require_same(a, b, f"{path}[{key!r}]", types=types, composites=composites)


def _at(path: str) -> str:
    return f" at {path}" if path else ""
