"""What is given to a replica function, and which part of it each replica gets."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.context.modes import RunOptions
from distlab.devices.layouts import ROWS, WHOLE, Partition
from distlab.devices.mesh import ReplicaMesh
from distlab.errors import OptionError
from distlab.text.counts import is_count
from distlab.values.checks import is_array_like, require_components
from distlab.values.distributed import (
    DistributedValues,
    Mirrored,
    PerReplica,
    Shape,
    replica_shapes,
)
from distlab.variables.variable import Variable

Role: TypeAlias = Literal["split", "whole", "static"]
"""A leaf differs per replica, is the same on each, or is no array at all."""


class Leaf(NamedTuple):
    """One leaf of the arguments.

    Attributes:
      role: how replicas get it.
      label: where it stands, such as `x` or `state['w']`.
      value: the leaf itself when static, else None: programs hold no arrays.
      shapes: its shape on each replica.
      dtype: element type, None when static.
      weak: whether the dtype gives way to others, as a Python number's does.
      donated: whether results may take over its memory.
    """

    role: Role
    label: str
    value: Any = None
    shapes: tuple[Shape, ...] = ()
    dtype: Any = None
    weak: bool = False
    donated: bool = False

    @property
    def partition(self) -> Partition:
        """How its global array is divided into the replicas' blocks."""
        return ROWS if self.role == "split" else WHOLE

    def local(self, replica: int) -> jax.ShapeDtypeStruct:
        """Returns what a replica sees of it."""
        return jax.ShapeDtypeStruct(self.shapes[replica], self.dtype, weak_type=self.weak)

    def __str__(self) -> str:
        """Writes it as `name: dtype[shape]`."""
        if self.role == "static":
            return f"{self.label}: {type(self.value).__name__}"
        distinct = list(dict.fromkeys(self.shapes))
        return f"{self.label}: {'|'.join(f'{self.dtype}{list(shape)}' for shape in distinct)}"


@final
class Arguments:
    """The arguments of one call: their leaves and how to put them together again."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Any,
        kwargs: Any,
        mesh: ReplicaMesh,
        donated: tuple[int, ...] = (),
    ) -> None:
        paths, self._structure = jax.tree_util.tree_flatten_with_path(
            (args, kwargs), is_leaf=lambda v: isinstance(v, DistributedValues | Variable)
        )
        names = _parameter_names(fn, len(args))
        self.leaves = [
            _leaf(value, _label(path, names), mesh)._replace(donated=_position(path) in donated)
            for path, value in paths
        ]

    @property
    def ragged(self) -> bool:
        """Whether the replicas get arrays of different shapes."""
        return any(len(set(leaf.shapes)) > 1 for leaf in self.leaves)

    def dynamic(self) -> list[Leaf]:
        """Returns the leaves that hold arrays."""
        return [leaf for leaf in self.leaves if leaf.role != "static"]

    def build(self, arrays: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns `(args, kwargs)` with these arrays in the place of the dynamic leaves."""
        rest = iter(arrays)
        leaves = [leaf.value if leaf.role == "static" else next(rest) for leaf in self.leaves]
        args, kwargs = jax.tree.unflatten(self._structure, leaves)
        return args, kwargs


def donated_arguments(options: RunOptions | None, count: int) -> tuple[int, ...]:
    """Returns the positions of the arguments that are given away.

    Args:
      options: those of the call.
      count: how many arguments the call has.

    Raises:
      OptionError: there is no such argument.
    """
    if options is None:
        return ()
    asked: Any = options.donate_argnums
    positions = (asked,) if isinstance(asked, int) else asked
    if not isinstance(positions, tuple) or not all(is_count(n, count - 1) for n in positions):
        raise OptionError(
            "donate_argnums must be positions of arguments in args, which has "
            f"{count} here, got {asked!r}. For the first one write donate_argnums=0."
        )
    return positions


def _leaf(value: Any, label: str, mesh: ReplicaMesh) -> Leaf:
    if isinstance(value, PerReplica):
        stacked = value.stacked
        require_components(value, label, mesh.replicas)
        return Leaf("split", label, None, replica_shapes(value), stacked.dtype)
    if isinstance(value, Mirrored):
        value = value.array
    if not is_array_like(value):
        return Leaf("static", label, value)
    shape = np.shape(value)
    if isinstance(value, jax.Array):
        weak, dtype = bool(value.aval.weak_type), value.dtype
    else:
        weak = not hasattr(value, "dtype")
        dtype = jnp.result_type(value)
    return Leaf("whole", label, None, (shape,) * mesh.replicas, dtype, weak)


def _parameter_names(fn: Callable[..., Any], count: int) -> list[str]:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [names[i] if i < len(names) else f"args[{i}]" for i in range(count)]


def _position(path: tuple[Any, ...]) -> int | None:
    """Returns which positional argument a leaf belongs to."""
    kind, first, *_ = path
    return first.idx if kind.idx == 0 else None


def _label(path: tuple[Any, ...], names: list[str]) -> str:
    kind, first, *rest = path
    name = names[first.idx] if kind.idx == 0 else str(first.key)
    return name + jax.tree_util.keystr(tuple(rest))
