"""The arrays that a program receives and returns: names, and how they lie on the mesh."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.tree_util import DictKey, SequenceKey, keystr

from distlab.events import ArrayPlace
from distlab.events.sink import NO_NOTES, Argument, ProgramNotes
from distlab.meshes import blocks
from distlab.programs.hlo_text import Module

Path: TypeAlias = tuple[Any, ...]

_NAMES: Final = ("key", "name", "idx")
_KEY: Final = re.compile(r"\['([^']*)'\]|\[(\d+)\]|\.(\w+)")
_ARGUMENT: Final = re.compile(r"^[A-Za-z_]\w*")


class _Array(NamedTuple):
    path: Path
    info: Any  # Of a shape and a dtype
    sharding: Any
    shown: Path  # As the user's arguments have it
    name: str = ""


class Places:
    """The inputs and outputs of a program.

    Args:
      module: The program's text.
      trees: `args_info`, `input_shardings` (None instead of an argument that JAX dropped),
        `out_info` and `output_shardings` of the compiled program; None where it has none.
      notes: Names of its arrays, which Flax and Equinox hide from JAX.
    """

    def __init__(
        self,
        module: Module,
        trees: tuple[Any, Any, Any, Any] = (None, None, None, None),
        notes: ProgramNotes = NO_NOTES,
    ) -> None:
        given, placed, returned, put = trees
        taken, made = _joined(given, placed), _joined(returned, put)
        if _describe(notes.inputs, taken):
            taken = [
                one._replace(shown=user.path or _parsed(user.name), name=user.name)
                for one, user in zip(taken, notes.inputs, strict=True)
            ]
        written = {n: one.metadata.get("op_name", "") for n, one in module.parameters.items()}
        used = [one for one in taken if one.sharding is not None]
        first = max(len(written) - len(used), 0)  # arrays that it closes over come before
        taken = _named(taken, {one.path: written.get(first + n, "") for n, one in enumerate(used)})
        used = [one for one in taken if one.sharding is not None]
        self.meshes = _meshes(one.sharding for one in (*taken, *made))
        self.inputs = [_place(one.name, one) for one in taken]
        self.outputs = [_place(keystr(one.path), one) for one in made]
        self._states: dict[int, _Array | None]
        self._used: list[_Array | None] = [None] * first + [*used]
        self._made = made
        if len(notes.outputs) == len(made):
            self._states = _states_by_name(notes.outputs, made, taken)
        else:
            alike: dict[Any, list[_Array]] = defaultdict(list)
            for one in taken:
                alike[_kind(one), _keys(one.path)[-1:]].append(one)
                alike[_kind(one), None].append(one)
            self._states = {n: _state(one, alike) for n, one in enumerate(made)}

    def input(self, number: int) -> str:
        """Returns the short name of a parameter of the program; "" for none of the user's."""
        one = self._used[number] if number < len(self._used) else None
        return "" if one is None else _text(_keys(one.shown)) or one.name

    def state(self, outputs: Sequence[int], *, backward: bool) -> str:
        """Returns the name of the state of which outputs are new values; "" for none.

        Those of a gradient are moments and the parameter: they share the end of their paths. Of
        names without paths it is the furthest, since a parameter's value follows from its moments.
        """
        found = [old for n in outputs if (old := self._states.get(n)) is not None]
        if not backward:
            found = [old for old in found if _keys(old.shown) or _donated(old)]
        if not found:
            return ""
        nearest, *others = (_keys(old.shown) for old in found)
        shared = nearest
        for keys in others:
            shared = _shared_end(shared, keys)
        return _text(_after_numbers(shared) or nearest) or found[-1].name


def _describe(arguments: Sequence[Argument], arrays: Sequence[_Array]) -> bool:
    """Returns whether arguments are those of a program, by number and shape."""
    return len(arguments) == len(arrays) and all(
        one.shape in (None, tuple(array.info.shape))
        for one, array in zip(arguments, arrays, strict=True)
    )


def _parsed(name: str) -> Path:
    """Returns the path of a name such as `state[0]['w']`."""
    keys = _KEY.findall(name) if "[" in name else []
    return tuple(
        SequenceKey(int(number)) if number else DictKey(key or attribute)
        for key, number, attribute in keys
    )


def _joined(infos: Any, shardings: Any) -> list[_Array]:
    """Returns the leaves of both trees; None is a leaf."""
    found, _ = jax.tree_util.tree_flatten_with_path(infos, is_leaf=lambda leaf: leaf is None)
    placed = jax.tree.leaves(shardings, is_leaf=lambda leaf: leaf is None)
    if len(placed) != len(found):
        placed = [None] * len(found)
    return [
        _Array(path, info, sharding, path)
        for (path, info), sharding in zip(found, placed, strict=True)
        if info is not None
    ]


def _meshes(shardings: Iterable[Any]) -> list[dict[str, int]]:
    meshes = dict.fromkeys(s.mesh for s in shardings if isinstance(s, NamedSharding))
    return [dict(mesh.shape) for mesh in meshes]


def _place(name: str, one: _Array) -> ArrayPlace:
    shape, dtype = tuple(one.info.shape), one.info.dtype
    try:
        shard = shape if one.sharding is None else one.sharding.shard_shape(shape)
    except ValueError:
        shard = shape
    itemsize = dtype.itemsize if hasattr(dtype, "itemsize") else np.dtype(dtype).itemsize
    return ArrayPlace(
        name=name,
        dtype=str(dtype),
        shape=list(shape),
        spec=_spec(one.sharding, len(shape)),
        bytes_per_device=math.prod(shard) * itemsize,
        donated=_donated(one),
        used=one.sharding is not None,
    )


def _spec(sharding: Any, ndim: int) -> list[list[str]] | None:
    """Returns the axes that divide each dimension."""
    if not isinstance(sharding, NamedSharding):
        return None
    return [list(names) for names in blocks.full_spec(sharding.spec, ndim)]


def _donated(one: _Array) -> bool:
    return bool(getattr(one.info, "donated", False))


def _named(arrays: Sequence[_Array], written: Mapping[Path, str]) -> list[_Array]:
    """Adds names such as `state['w']` as XLA's text has them, or the places of arguments."""
    found = []
    for one in arrays:
        text = written.get(one.path, "")
        text = text if _ARGUMENT.match(text) else keystr(one.path[1:])
        found.append(one._replace(name=one.name or text))
    return found


def _state(new: _Array, inputs: Mapping[Any, list[_Array]]) -> _Array | None:
    """Returns the input of which an output is the new value, as far as shapes and names tell.

    `inputs` has them by kind and last key, and by kind alone for outputs without keys.
    """
    if not new.info.shape:
        return None
    key = _keys(new.path)[-1:]
    alike = inputs.get((_kind(new), key)) or ([] if key else inputs.get((_kind(new), None), []))
    shared = [len(_shared_end(tuple(old.path), tuple(new.path))) for old in alike]
    return alike[shared.index(max(shared))] if alike else None


def _states_by_name(
    names: Sequence[str], made: Sequence[_Array], inputs: Sequence[_Array]
) -> dict[int, _Array | None]:
    """Returns the inputs of the same names; outputs without one follow the order of the inputs."""
    named = {one.name: one for one in inputs if one.name in names}
    rest = [one for one in inputs if one.name not in named]
    found = {}
    for number, (name, new) in enumerate(zip(names, made, strict=True)):
        old = named.get(name) or next((one for one in rest if _kind(one) == _kind(new)), None)
        if old in rest:
            rest.remove(old)
        found[number] = old if new.info.shape else None
    return found


def _kind(one: _Array) -> tuple[Any, Any]:
    return one.info.shape, one.info.dtype


def _keys(path: Path) -> tuple[str | int, ...]:
    """Returns the keys of a path from its first that is no number."""
    keys = [
        next(
            (value for name in _NAMES if (value := getattr(one, name, None)) is not None), str(one)
        )
        for one in path
    ]
    return _after_numbers(keys[:-1] if keys[-1:] == ["value"] else keys)  # of Flax


def _after_numbers(keys: Sequence[str | int]) -> tuple[str | int, ...]:
    first = next((n for n, key in enumerate(keys) if not isinstance(key, int)), len(keys))
    return tuple(keys[first:])


def _shared_end(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    pairs = list(zip(reversed(one), reversed(other), strict=False))
    length = next((n for n, (a, b) in enumerate(pairs) if a != b), len(pairs))
    return one[len(one) - length :]


def _text(keys: Sequence[str | int]) -> str:
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return text.lstrip(".")
