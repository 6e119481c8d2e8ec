"""Many arrays moved to a device and back as one of each type, which takes a tenth of the time."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from distlab.devices import jax_internals

_LEAST: Final = 8
"""Fewer arrays are not worth a program."""

_MOST_BYTES: Final = 1 << 20
"""Larger arrays are not worth a copy."""

_KEPT: Final = 64

_Kinds: TypeAlias = tuple[tuple[tuple[int, ...], np.dtype], ...]
"""The shape and the type of each array."""


def to_device(arrays: Sequence[np.ndarray], sharding: Sharding) -> list[jax.Array]:
    """Returns arrays on a device.

    Args:
      arrays: The arrays; nobody may write to them any more.
      sharding: One device.
    """
    kinds = _kinds(arrays)
    if not _worth_it(kinds):
        placed: list[jax.Array] = jax.device_put(arrays, sharding)
        return placed
    flat = [
        np.concatenate([arrays[number].reshape(-1) for number in own]) for own in _groups(kinds)
    ]
    parts: list[jax.Array] = _splitter(kinds, sharding)(jax.device_put(flat, sharding))
    return parts


def to_host(arrays: Sequence[jax.Array]) -> list[np.ndarray]:
    """Returns the values of arrays on one device."""
    kinds = _kinds(arrays)
    if not _worth_it(kinds):
        return [np.asarray(array) for array in arrays]
    flat = [np.asarray(array) for array in _joiner(kinds)(list(arrays))]
    return _parts(flat, kinds)


def _kinds(arrays: Sequence[Any]) -> _Kinds:
    return tuple([(array.shape, array.dtype) for array in arrays])


@functools.lru_cache(_KEPT)
def _small(kinds: _Kinds) -> bool:
    return len(kinds) >= _LEAST and all(
        jnp.issubdtype(dtype, np.number) and math.prod(shape) * dtype.itemsize <= _MOST_BYTES
        for shape, dtype in kinds
    )


def _worth_it(kinds: _Kinds) -> bool:
    # A program would find the NaN that a variable may hold, and blame this one.
    return _small(kinds) and not jax_internals.checks_results()


@functools.lru_cache(_KEPT)
def _groups(kinds: _Kinds) -> list[list[int]]:
    """Returns the numbers of the arrays of each type."""
    groups: dict[np.dtype, list[int]] = {}
    for number, (_, dtype) in enumerate(kinds):
        groups.setdefault(dtype, []).append(number)
    return list(groups.values())


@functools.lru_cache(_KEPT)
def _places(kinds: _Kinds) -> list[tuple[int, int, int, tuple[int, ...]]]:
    """Returns the group of each array, where it begins and ends in it, and its shape."""
    places: list[Any] = [None] * len(kinds)
    for group, numbers in enumerate(_groups(kinds)):
        begin = 0
        for number in numbers:
            shape = kinds[number][0]
            end = begin + math.prod(shape)
            places[number] = (group, begin, end, shape)
            begin = end
    return places


def _parts(flat: Sequence[Any], kinds: _Kinds) -> list[Any]:
    return [flat[group][begin:end].reshape(shape) for group, begin, end, shape in _places(kinds)]


@functools.lru_cache(_KEPT)
def _splitter(kinds: _Kinds, sharding: Sharding) -> Any:
    return jax.jit(functools.partial(_parts, kinds=kinds), out_shardings=sharding)


@functools.lru_cache(_KEPT)
def _joiner(kinds: _Kinds) -> Any:
    def join(arrays: list[jax.Array]) -> list[jax.Array]:
        return [jnp.concatenate([arrays[n].reshape(-1) for n in own]) for own in _groups(kinds)]

    return jax.jit(join)
