"""The arrays that a program receives and returns: names, and how they lie on the mesh."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.tree_util import keystr

from distlab.events import ArrayPlace
from distlab.programs.hlo_text import Module

Path: TypeAlias = tuple[Any, ...]

_ARGUMENT: Final = re.compile(r"^[A-Za-z_]\w*")


class _Array(NamedTuple):
    path: Path
    info: Any  # Of a shape and a dtype
    sharding: Any


class Places:
    """The inputs and outputs of a program.

    Args:
      module: The program's text.
      given: `args_info` of the compiled program.
      placed: Its `input_shardings`; None in place of an argument that JAX dropped.
      returned: Its `out_info`.
      put: Its `output_shardings`.
    """

    def __init__(
        self,
        module: Module,
        given: Any = None,
        placed: Any = None,
        returned: Any = None,
        put: Any = None,
    ) -> None:
        taken, made = _joined(given, placed), _joined(returned, put)
        written = _written_names(module)
        used = [one for one in taken if one.sharding is not None]
        first = max(len(written) - len(used), 0)  # arrays that it closes over come before
        names = {one.path: written.get(first + n, "") for n, one in enumerate(used)}
        self.meshes = _meshes(one.sharding for one in (*taken, *made))
        self.inputs = [_place(_full(one.path[1:], names.get(one.path, "")), one) for one in taken]
        self.outputs = [_place(keystr(one.path), one) for one in made]
        self._used: list[_Array | None] = [None] * first + [*used]
        self._made = made
        self._arguments = names
        self._states = {n: _state(one, taken) for n, one in enumerate(made)}

    def input(self, number: int) -> str:
        """Returns the short name of a parameter of the program; "" for none of the user's."""
        one = self._used[number] if number < len(self._used) else None
        return "" if one is None else self._named(one)

    def state(self, outputs: Sequence[int], *, backward: bool) -> str:
        """Returns the name of the state of which outputs are new values; "" for none.

        Those of a gradient are moments and the parameter: they share the end of their paths.
        """
        states = [(n, self._states.get(n)) for n in outputs]
        found = [(self._made[n], old) for n, old in states if old is not None]
        if not backward:
            found = [(new, old) for new, old in found if _keys(new.path) or _donated(old)]
        if not found:
            return ""
        nearest, old = found[0]
        shared = _keys(nearest.path)
        for new, _ in found[1:]:
            shared = _shared_end(shared, _keys(new.path))
        return _text(_after_numbers(shared) or _keys(nearest.path)) or self._named(old)

    def _named(self, one: _Array) -> str:
        argument = _ARGUMENT.match(self._arguments.get(one.path, ""))
        return _text(_keys(one.path)) or (argument[0] if argument else keystr(one.path[1:]))


def _joined(infos: Any, shardings: Any) -> list[_Array]:
    """Returns the leaves of both trees; None is a leaf."""
    found, _ = jax.tree_util.tree_flatten_with_path(infos, is_leaf=lambda leaf: leaf is None)
    placed = jax.tree.leaves(shardings, is_leaf=lambda leaf: leaf is None)
    if len(placed) != len(found):
        placed = [None] * len(found)
    return [
        _Array(path, info, sharding)
        for (path, info), sharding in zip(found, placed, strict=True)
        if info is not None
    ]


def _written_names(module: Module) -> dict[int, str]:
    """Returns the names of the program's parameters, such as `params['w']`, by number."""
    return {
        int(one.operands[0]): one.metadata.get("op_name", "")
        for one in module.computations.get(module.entry, {}).values()
        if one.opcode == "parameter"
    }


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
    parts = [*sharding.spec, *(None for _ in range(ndim - len(sharding.spec)))]
    return [
        [part] if isinstance(part, str) else [*part] if isinstance(part, tuple) else []
        for part in parts
    ]


def _donated(one: _Array) -> bool:
    return bool(getattr(one.info, "donated", False))


def _full(path: Path, written: str) -> str:
    """Returns the name of an argument, such as `state['w']`, as XLA's text has it, or its place."""
    return written if _ARGUMENT.match(written) else keystr(path)


def _state(new: _Array, inputs: Sequence[_Array]) -> _Array | None:
    """Returns the input of which an output is the new value, as far as shapes and names tell."""
    if not new.info.shape:
        return None
    key = _keys(new.path)[-1:]
    for old in inputs:
        alike = old.info.shape == new.info.shape and old.info.dtype == new.info.dtype
        if alike and (not key or _keys(old.path)[-1:] == key):
            return old
    return None


def _keys(path: Path) -> tuple[str | int, ...]:
    """Returns the keys of a path from its first that is no number."""
    return _after_numbers(
        tuple(
            next(
                value
                for name in ("key", "name", "idx")
                if (value := getattr(one, name, None)) is not None
            )
            for one in path
        )
    )


def _after_numbers(keys: Sequence[str | int]) -> tuple[str | int, ...]:
    first = next((n for n, key in enumerate(keys) if not isinstance(key, int)), len(keys))
    return tuple(keys[first:])


def _shared_end(one: tuple[str | int, ...], other: tuple[str | int, ...]) -> tuple[str | int, ...]:
    pairs = list(zip(reversed(one), reversed(other), strict=False))
    length = next((n for n, (a, b) in enumerate(pairs) if a != b), len(pairs))
    return one[len(one) - length :]


def _text(keys: Sequence[str | int]) -> str:
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return text.lstrip(".")
