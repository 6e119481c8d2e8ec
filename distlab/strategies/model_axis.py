"""Layouts of variables and values over the devices of a replica."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from distlab.devices.layouts import NewVariable
from distlab.devices.mesh import MODEL
from distlab.errors import ArgumentTypeError, ShardingError
from distlab.text.shown import shown


@final
class ModelLayouts:
    """Layouts by patterns of names, as in Keras' `LayoutMap`, which may be one of these."""

    def __init__(self, layouts: Mapping[str, Any]) -> None:
        if not isinstance(layouts, Mapping):
            raise ArgumentTypeError(
                "layouts must be a mapping of patterns of names to layouts, such as "
                f'{{"dense.*/kernel": (None, "model")}}, got {shown(layouts)}.'
            )
        self._layouts = layouts

    def spec(self, of: NewVariable, devices: int) -> PartitionSpec:
        """Returns how the devices of a replica divide a variable; an empty one for not at all."""
        asked = self._named(of.name) if of.layout is None else of.layout
        entries = [] if asked is None else list(getattr(asked, "axes", asked))  # a TensorLayout
        if any(entry not in (None, MODEL) for entry in entries) or len(entries) > len(of.shape):
            raise ShardingError(
                f'A layout has "{MODEL}" or None for each dimension, got {shown(entries)} for '
                f'{of.name} of {len(of.shape)} dimensions. Write (None, "{MODEL}") to divide the '
                "second one over the devices of a replica."
            )
        if entries.count(MODEL) > 1:
            raise ShardingError(
                f'A layout divides one dimension over the axis "{MODEL}", got {shown(entries)} for '
                f"{of.name}. Leave None for the others."
            )
        if devices == 1 or MODEL not in entries:
            return PartitionSpec()
        divided = entries.index(MODEL)
        if of.shape[divided] % devices:
            raise ShardingError(
                f"The {devices} devices of a replica must divide a dimension evenly, and "
                f"dimension {divided} of {of.name} {list(of.shape)} is {of.shape[divided]}. Choose "
                "another dimension, or leave its layout out."
            )
        return PartitionSpec(*entries[: divided + 1])

    def _named(self, name: str) -> Any:
        """Returns the layout of a name: of the equal pattern, else of the only one found in it."""
        if name in self._layouts:
            return self._layouts[name]
        found = [pattern for pattern in self._layouts if re.search(pattern, name)]
        if len(found) > 1:
            raise ShardingError(
                f"A variable's name must match one pattern of layouts, and {name} matches "
                f"{shown(found)}. Make them longer, such as {found[0]}$."
            )
        return self._layouts[found[0]] if found else None


def replicated(value: Any) -> Any:
    """Returns a value of a step whole on each device of the replica."""
    if not _is_divided_here():
        return value
    return jax.lax.with_sharding_constraint(jnp.asarray(value), PartitionSpec())


def split(value: Any, parts: Sequence[int]) -> Any:
    """Returns a value of a step in parts, along each dimension so many, one on each device."""
    divided = [axis for axis, count in enumerate(parts) if count > 1]
    if not divided or not _is_divided_here():
        return value
    array = jnp.asarray(value)
    if len(divided) == 1:
        spec = PartitionSpec(*[None] * divided[0], MODEL)
        return jax.lax.with_sharding_constraint(array, spec)
    # One axis of the mesh divides one dimension: that of all blocks.
    missing = [(0, -size % count) for size, count in zip(array.shape, parts, strict=True)]
    padded = jnp.pad(array, missing)
    sizes = [size // count for size, count in zip(padded.shape, parts, strict=True)]
    pairs = [n for pair in zip(parts, sizes, strict=True) for n in pair]
    blocks = jnp.moveaxis(padded.reshape(pairs), range(0, len(pairs), 2), range(len(parts)))
    joined = blocks.reshape(-1, *sizes)
    joined = jax.lax.with_sharding_constraint(joined, PartitionSpec(MODEL))
    blocks = jnp.moveaxis(joined.reshape(blocks.shape), range(len(parts)), range(0, len(pairs), 2))
    whole = blocks.reshape(padded.shape)
    return whole[tuple(map(slice, array.shape))]


def _is_divided_here() -> bool:
    """Returns whether a step of replicas with several devices is traced, and not run eagerly."""
    return MODEL in jax.sharding.get_abstract_mesh().axis_names
