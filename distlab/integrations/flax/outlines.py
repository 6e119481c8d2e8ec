"""What objects of Flax NNX consist of, so that a later call sees quickly whether it is the same.

`nnx.split` describes each attribute anew, which costs more than a small step. An `Outline` notes
what it found: for each object its type, the names of its attributes, and which values they hold.
While all of that is the same, the objects have the same structure, and their arrays are read from
the variables directly.

An outline knows the parts of the objects by their addresses and holds none of them, so it keeps
nothing alive. An address may be taken over by another object; so each part is looked at again,
its type and what it holds, and an object that looks the same in all of this has the same
structure. Values that are compared as a whole, such as functions, are known by weak references.
"""

from __future__ import annotations

import itertools
import operator
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, final

import jax
import numpy as np
from flax import nnx

from distlab.devices.jax_internals import ConcreteArray

Contents: TypeAlias = tuple[tuple[Any, ...] | None, tuple[Any, ...]]
"""The names of what an object holds, where it has names, and the values."""

_CONSTANT: Final = (
    *(int, float, complex, bool, str, bytes, types.NoneType, types.EllipsisType),
    *(np.dtype, np.generic, type(nnx.Module._pytree__nodes)),  # which attributes hold data
)
"""Types of values that never change and hold no objects."""

_SLOT: Final = "_raw_value" if "_raw_value" in nnx.Variable.__slots__ else "raw_value"
"""Where a variable keeps its array; the name differs between versions of Flax."""

_KEPT: Final = 256
"""Of how many groups of objects something is known."""


class _NoOutline(Exception):  # noqa: N818 - it is no error: the objects are split in each call
    """The objects hold something whose changes an outline would not see."""


class _Part(NamedTuple):
    """What one object held.

    Attributes:
      contents: Returns what it holds now.
      names: The names.
      addresses: The values' addresses.
      inner: Returns the values that are parts themselves; None where there are none.
      kinds: Their types.
    """

    contents: Callable[[Any], Contents]
    names: tuple[Any, ...] | None
    addresses: tuple[int, ...]
    inner: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None
    kinds: tuple[type, ...]


@final
class Outline:
    """What objects consisted of.

    Args:
      objects: The objects.
      variables: For each of their arrays the variable that holds it.

    Raises:
      _NoOutline: The objects hold something whose changes would not be seen.
    """

    def __init__(self, objects: Sequence[Any], variables: Sequence[nnx.Variable[Any]]) -> None:
        self._constants: list[Any] = []
        self._others: dict[int, weakref.ref[Any]] = {}
        self._hashes: list[tuple[weakref.ref[Any], int]] = []
        self._complete = True
        self._parts: list[_Part] = []
        found: list[Any] = [tuple(objects)]
        known: set[int] = set()
        for one in found:
            self._parts.append(part := self._part(one, known))
            if part.inner is not None:
                found.extend(part.inner(part.contents(one)[1]))
        positions = {id(one): number for number, one in enumerate(found)}
        held = [id(one) for one in found if isinstance(one, nnx.Variable)]
        if sorted(held) != sorted(map(id, variables)):
            raise _NoOutline  # a variable without an array, with several, or an array without one
        self._positions = [positions[id(variable)] for variable in variables]

    def variables(self, objects: Sequence[Any]) -> list[nnx.Variable[Any]] | None:
        """Returns the variables of objects, for each array one; None if they have changed."""
        found: list[Any] = [tuple(objects)]
        for number, (contents, names, addresses, inner, kinds) in enumerate(self._parts):
            names_now, values = contents(found[number])
            if names_now != names or tuple(map(id, values)) != addresses:
                return None
            if inner is not None:
                parts = inner(values)
                if tuple(map(type, parts)) != kinds:
                    return None
                found += parts
        if any(hash(reference()) != known for reference, known in self._hashes):
            return None
        if not self._complete:  # last, as another thread may drop a value meanwhile
            return None
        return [found[position] for position in self._positions]

    def _part(self, one: Any, known: set[int]) -> _Part:
        """Returns what an object holds."""
        contents = _contents_of(type(one))
        names, values = contents(one)
        inner = []
        for number, value in enumerate(values):
            if _is_part(value):
                if id(value) not in known:
                    known.add(id(value))
                    inner.append(number)
            else:
                self._remember(value)
        return _Part(
            contents,
            names,
            tuple(map(id, values)),
            _taking(inner),
            tuple(type(values[number]) for number in inner),
        )

    def _remember(self, value: Any) -> None:
        """Notes a value that is compared as a whole."""
        if isinstance(value, _CONSTANT):
            self._constants.append(value)
        elif id(value) not in self._others:
            if isinstance(value, jax.Array | np.ndarray):
                raise _NoOutline
            try:
                reference = weakref.ref(value, self._forget)
            except TypeError:
                raise _NoOutline from None
            self._others[id(value)] = reference
            if not _is_one_by_identity(value):
                self._hashes.append((reference, hash(value)))

    def _forget(self, _: Any) -> None:
        """Notes that a value is gone, whose address another one may get."""
        self._complete = False


class Structure(Protocol):
    """The structure of objects."""

    def variables(self, objects: Sequence[Any]) -> list[Any]:
        """Returns for each array what holds it in objects of this structure."""


_S = TypeVar("_S", bound=Structure)


class Found(NamedTuple, Generic[_S]):
    """Objects that consist of the same as before.

    Attributes:
      structure: Their structure.
      variables: For each of their arrays the variable that holds it.
    """

    structure: _S
    variables: list[nnx.Variable[Any]]


@final
class _Noted(Generic[_S]):
    """What is known of some objects.

    Attributes:
      splits: How often they were split since an outline served.
      outline: Their outline, if there is one.
      structure: Their structure, which lives as long as a program has it.
      served: Whether the outline has been of use.
    """

    __slots__ = ("outline", "served", "splits", "structure")

    def __init__(self) -> None:
        self.splits = 0
        self.outline: Outline | None = None
        self.structure: weakref.ref[_S] | None = None
        self.served = False


@final
class Outlines(Generic[_S]):
    """The outlines of those objects that came last."""

    def __init__(self) -> None:
        self._noted: dict[tuple[int, ...], _Noted[_S]] = {}
        self._lock = threading.Lock()

    def find(self, objects: Sequence[Any]) -> Found[_S] | None:
        """Returns what is known of objects if they consist of the same as before."""
        noted = self._noted.get(tuple(map(id, objects)))
        if noted is None or noted.outline is None or noted.structure is None:
            return None
        structure = noted.structure()
        variables = None if structure is None else noted.outline.variables(objects)
        if structure is None or variables is None:
            return None
        noted.served = True
        return Found(structure, variables)

    def note(self, objects: Sequence[Any], structure: _S, arrays: Sequence[Any]) -> None:
        """Notes what objects consist of that were split.

        Objects that come once need no outline, and those that change with each call are
        outlined ever more seldom.
        """
        with self._lock:
            key = tuple(map(id, objects))
            noted = self._noted.pop(key, None)
            if noted is None or noted.served:
                noted = _Noted()
            while len(self._noted) >= _KEPT:
                del self._noted[next(iter(self._noted))]
            self._noted[key] = noted
            noted.splits += 1
            noted.outline = None
            if noted.splits > 1 and noted.splits.bit_count() == 1:
                noted.structure = weakref.ref(structure)
                noted.outline = _outline(objects, structure.variables(objects), arrays)


def _outline(
    objects: Sequence[Any], variables: Sequence[Any], arrays: Sequence[Any]
) -> Outline | None:
    """Returns an outline of objects; None if one would not see all changes."""
    if not all(issubclass(type(one), nnx.Variable) for one in variables):
        return None
    try:
        outline = Outline(objects, variables)
    except (_NoOutline, TypeError):  # TypeError: a value has no hash
        return None
    # Objects that describe themselves by new values each time would never look the same.
    found = outline.variables(objects)
    values = None if found is None else values_of(found)
    return outline if values is not None and all(map(operator.is_, values, arrays)) else None


def values_of(variables: Sequence[nnx.Variable[Any]]) -> list[Any] | None:
    """Returns the arrays in variables; None if one holds something else."""
    values = list(map(operator.attrgetter(_SLOT), variables))
    if all(type(value) is ConcreteArray or _is_leaf(value) for value in values):
        return values
    return None


def store(variables: Sequence[nnx.Variable[Any]], arrays: Sequence[Any]) -> None:
    """Gives variables new arrays: all of them, if an interrupt comes."""
    if all(type(array) is ConcreteArray for array in arrays):
        # In C, where no interrupt comes between two of them.
        deque(map(object.__setattr__, variables, itertools.repeat(_SLOT), arrays), maxlen=0)
        return
    for variable, array in zip(variables, arrays, strict=True):
        setattr(variable, _SLOT, array)  # an error where JAX traces a function around the step


def _is_leaf(value: Any) -> bool:
    """Returns whether a variable's value is one array."""
    return jax.tree_util.all_leaves((value,)) and not isinstance(value, jax.Ref)


def _is_part(value: Any) -> bool:
    """Returns whether a value holds others."""
    kind = type(value)
    if issubclass(kind, nnx.Pytree | nnx.Variable):
        return True
    return kind is not types.NoneType and not jax.tree_util.all_leaves((value,))


def _contents_of(kind: type) -> Callable[[Any], Contents]:
    """Returns how to ask an object of a type what it holds."""
    if issubclass(kind, nnx.Pytree):
        return _attributes
    return _metadata if issubclass(kind, nnx.Variable) else _children


def _attributes(one: nnx.Pytree) -> Contents:
    held = vars(one)
    return tuple(held), tuple(held.values())


def _metadata(one: nnx.Variable[Any]) -> Contents:
    held = one.get_metadata()
    return tuple(held), tuple(held.values())


def _children(one: Any) -> Contents:
    flat = jax.tree_util.default_registry.flatten_one_level(one)
    if flat is None:
        return None, ()
    children, rest = flat
    return None, (*children, *(rest if type(rest) in (tuple, list) else (rest,)))


def _is_one_by_identity(value: Any) -> bool:
    """Returns whether a value is equal to itself alone, or can't change."""
    if isinstance(value, type | types.MethodType | types.BuiltinFunctionType):
        return True
    kind: Any = type(value)
    return kind.__hash__ is object.__hash__


def _taking(numbers: list[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]] | None:
    """Returns a function that takes some of a tuple's values."""
    if not numbers:
        return None
    if len(numbers) == 1:
        (number,) = numbers
        return lambda values: (values[number],)
    take: Callable[[tuple[Any, ...]], tuple[Any, ...]] = operator.itemgetter(*numbers)
    return take
