"""Objects of other libraries that a step changes in place, such as models of Flax NNX.

A library that takes part is offered here, and imported when the first object of it may come.
Such objects leave the arguments of `run` before they are flattened: the first one's place takes
all their arrays, as a `State`, and the others are marked. Each replica gets objects of its own
with these arrays. What it makes of the arrays must be the same on all replicas; the caller's
objects receive it when the step is dispatched.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, final

import jax

from distlab.step.arguments.in_use import Use
from distlab.step.arguments.names import StateKey, argument_label, parameter_names
from distlab.values.distributed import DistributedValues, Mirrored


class Library(Protocol):
    """A library whose objects are changed in place."""

    def is_object(self, value: Any) -> bool:
        """Returns whether a value is an object of the library that is changed in place."""

    def is_whole(self, value: Any) -> bool:
        """Returns whether a value is such an object, or holds parts of some and isn't entered."""

    def split(
        self, objects: Sequence[Any], use: Use
    ) -> tuple[Any, list[Any], Callable[[list[Any]], None]]:
        """Returns the objects' structure, their arrays, and what gives them a step's arrays.

        The structure is equal for objects that are alike but for numbers. Its `labels` are the
        number of its object and the path of each array; `enter(arrays, examples)` returns one
        replica's `objects`, whose `leave()` returns the arrays after the function.
        """


offered: dict[str, Callable[[], Library]] = {}
"""The loaders of libraries whose objects are changed in place, by the module to wait for."""


def offer(module: str, load: Callable[[], Library]) -> None:
    """Offers a library's objects as arguments of `run`."""
    offered[module] = functools.cache(load)


class Labels(NamedTuple):
    """Places of the objects in the arguments, from which their names come when needed."""

    function: Callable[..., Any]
    arguments: Any  # the structure of `(args, kwargs)`
    positions: tuple[int, ...]  # of each object's first place

    def owners(self) -> list[tuple[str, int | None]]:
        """Returns the label of each object, and the index of its positional argument."""
        nest = jax.tree.unflatten(self.arguments, range(self.arguments.num_leaves))
        paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(nest)[0]]
        names = parameter_names(self.function, len(nest[0]))
        found = [paths[position] for position in self.positions]
        return [
            (argument_label(path, names), path[1].idx if path[0].idx == 0 else None)
            for path in found
        ]


@final
class _Kind:
    """Key of all states with one structure; the labels don't count."""

    __slots__ = ("labels", "structure")

    def __init__(self, structure: Any, labels: Labels) -> None:
        self.structure = structure
        self.labels = labels

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kind) and self.structure == other.structure

    def __hash__(self) -> int:
        return hash(self.structure)


@jax.tree_util.register_pytree_with_keys_class
@final
class State:
    """The arrays of all objects among the arguments, in the place of the first object."""

    __slots__ = ("arrays", "kind")

    def __init__(self, kind: _Kind, arrays: Sequence[Any]) -> None:
        self.kind = kind
        self.arrays = arrays

    def tree_flatten(self) -> tuple[Sequence[Any], _Kind]:
        """Returns the arrays as children."""
        return self.arrays, self.kind

    def tree_flatten_with_keys(self) -> tuple[list[tuple[StateKey, Any]], _Kind]:
        """Returns the arrays as children, with their names."""
        owners = self.kind.labels.owners()
        keys = [
            StateKey(owners[number][0] + path, owners[number][1])
            for number, path in self.kind.structure.labels
        ]
        return list(zip(keys, self.arrays, strict=True)), self.kind

    @classmethod
    def tree_unflatten(cls, kind: _Kind, arrays: Sequence[Any]) -> State:
        """Returns a state with other arrays."""
        return cls(kind, arrays)


@jax.tree_util.register_pytree_node_class
@final
class Slot:
    """The slot of an object, by its number: of all but the first, and of those in a result."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def tree_flatten(self) -> tuple[tuple[()], int]:
        """Returns no children."""
        return (), self.number

    @classmethod
    def tree_unflatten(cls, number: int, _: tuple[()]) -> Slot:
        """Returns the slot."""
        return cls(number)


class _Nothing:
    """Key of the function's own result, which has no name."""

    def __str__(self) -> str:
        return ""


@jax.tree_util.register_pytree_with_keys_class
@final
class Changed:
    """Result of a function that changed objects in place, with slots of the objects in it."""

    __slots__ = ("result", "returns", "state")

    def __init__(self, result: Any, state: State, *, returns: bool) -> None:
        self.result = result
        self.state = state
        self.returns = returns

    def tree_flatten(self) -> tuple[tuple[Any, Any], bool]:
        """Returns the result and the state as children."""
        return (self.result, self.state), self.returns

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any], tuple[Any, Any]], bool]:
        """Returns the result and the state as children, without names."""
        return ((_Nothing(), self.result), (_Nothing(), self.state)), self.returns

    @classmethod
    def tree_unflatten(cls, returns: bool, children: tuple[Any, Any]) -> Changed:
        """Returns what a function returns with other arrays."""
        return cls(*children, returns=returns)


@final
class Taken:
    """The objects that left the arguments of one call, and the arguments with their slots."""

    def __init__(
        self,
        objects: Sequence[Any],
        update: Callable[[list[Any]], None],
        args: tuple[Any, ...],
        kwargs: Any,
    ) -> None:
        self.args = args
        self.kwargs: dict[str, Any] = kwargs
        self._objects = objects
        self._update = update

    def updated(self, changed: Changed) -> Any:
        """Gives the objects their new arrays; returns the function's result."""
        self._update([_array(value) for value in changed.state.arrays])
        if not changed.returns:
            return changed.result
        return jax.tree.map(
            lambda leaf: self._objects[leaf.number] if type(leaf) is Slot else leaf,
            changed.result,
            is_leaf=lambda leaf: type(leaf) is Slot or isinstance(leaf, DistributedValues),
        )


def taken(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], use: Use
) -> tuple[list[Any], Any, Taken | None]:
    """Takes the objects that are changed in place out of arguments.

    Returns the leaves and the structure of the rest, and the objects; None where there are none.
    """
    for module, load in offered.items():
        if module not in sys.modules:
            continue
        library = load()
        leaves, structure = jax.tree.flatten((args, kwargs), is_leaf=library.is_whole)
        objects: list[Any] = []
        positions: list[int] = []
        numbers: dict[int, int] = {}
        for position, leaf in enumerate(leaves):
            if not library.is_object(leaf):
                continue
            number = numbers.setdefault(id(leaf), len(objects))
            if number == len(objects):
                objects.append(leaf)
                positions.append(position)
            leaves[position] = Slot(number)
        if objects:
            kind, arrays, update = library.split(objects, use)
            labels = Labels(fn, structure, tuple(positions))
            leaves[positions[0]] = State(_Kind(kind, labels), arrays)
            found = Taken(objects, update, *jax.tree.unflatten(structure, leaves))
            return *jax.tree.flatten((found.args, found.kwargs)), found
    return *jax.tree.flatten((args, kwargs)), None


def call(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], examples: int | None
) -> Any:
    """Calls a replica function, with objects of its own where some were taken."""
    states = _states((args, kwargs))
    if not states:
        return fn(*args, **kwargs)
    (state,) = states
    inside = state.kind.structure.enter(state.arrays, examples)
    objects = inside.objects

    def entered(leaf: Any) -> Any:
        if type(leaf) is State:
            return objects[0]
        return objects[leaf.number] if type(leaf) is Slot else leaf

    args, kwargs = jax.tree.map(entered, (args, kwargs), is_leaf=_is_taken)
    result = fn(*args, **kwargs)
    numbers = {id(one): number for number, one in enumerate(objects)}
    returned: list[int] = []

    def left(leaf: Any) -> Any:
        if id(leaf) not in numbers:
            return leaf
        returned.append(numbers[id(leaf)])
        return Slot(returned[-1])

    result = jax.tree.map(
        left, result, is_leaf=lambda v: id(v) in numbers or isinstance(v, DistributedValues)
    )
    arrays = list(map(Mirrored, inside.leave()))
    return Changed(result, State(state.kind, arrays), returns=bool(returned))


def _states(nest: Any) -> list[State]:
    """Returns the state among arguments, if there is one."""
    if not any(module in sys.modules for module in offered):
        return []
    leaves = jax.tree.leaves(nest, is_leaf=_is_taken)
    return [leaf for leaf in leaves if type(leaf) is State]


def _is_taken(value: Any) -> bool:
    return type(value) is State or type(value) is Slot


def _array(value: Any) -> Any:
    return value.array if type(value) is Mirrored else value
