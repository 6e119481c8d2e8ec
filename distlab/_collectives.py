"""How a replica combines values with the others, from inside a replica function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

import jax
import jax.numpy as jnp

from distlab import _context
from distlab._reduce_op import ReduceOp
from distlab.errors import ValueShapeError


class Collectives(Protocol):
    """What a replica context needs of the replicas that run beside it."""

    def replica_id(self) -> Any:
        """Returns this replica's number, from 0: an int, or an int32 tracer."""

    def all_reduce(self, op: ReduceOp, values: list[jax.Array]) -> list[jax.Array]:
        """Returns each array's sum or mean over all replicas, the same on each."""

    def all_gather(self, values: list[jax.Array], axis: int) -> list[jax.Array]:
        """Returns all replicas' arrays, put one after another along `axis`."""

    def first(self, value: jax.Array) -> jax.Array:
        """Returns replica 0's value, on each replica."""

    def merge(
        self, strategy: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Calls `fn(strategy, *args, **kwargs)` once for all, in cross-replica context."""

    def create(self, make: Callable[[], Any], name: str) -> Any:
        """Makes one object for all replicas, such as a variable."""


def as_array(value: Any, verb: str) -> jax.Array:
    """Returns a leaf as an array.

    Raises:
      ValueShapeError: it is not something that has numbers.
    """
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueShapeError(
            f"{verb} combines arrays and numbers, got a {type(value).__name__}: {value!r:.80}. "
            "Leave it out."
        ) from error


def gather_axis(shape: tuple[int, ...], axis: Any, verb: str) -> int:
    """Returns the axis to gather along, counted from the front.

    Raises:
      ValueShapeError: there is no such axis; a scalar has none.
    """
    rank = len(shape)
    if type(axis) is not int or not -rank <= axis < rank:
        raise ValueShapeError(
            f"{verb} puts arrays one after another along an axis, but a component of shape "
            f"{list(shape)} has no axis {axis!r}. Reshape scalars to [1] first."
        )
    return axis % rank


def require_joinable(
    shapes: Sequence[tuple[int, ...]], axis: int, verb: str = "all_gather"
) -> None:
    """Checks that arrays of these shapes can be put one after another along an axis.

    Raises:
      ValueShapeError: they differ in another dimension.
    """
    if len({(len(shape), shape[:axis], shape[axis + 1 :]) for shape in shapes}) > 1:
        raise ValueShapeError(
            f"{verb} along axis {axis} needs arrays that agree in all other dimensions, got "
            f"{', '.join(str(list(shape)) for shape in dict.fromkeys(shapes))}. Pad them, or "
            "gather along the axis in which they differ."
        )


@final
class LoneCollectives:
    """The one replica of the default strategy."""

    def replica_id(self) -> Any:
        """Returns 0."""
        return 0

    def all_reduce(self, op: ReduceOp, values: list[jax.Array]) -> list[jax.Array]:
        """Returns the arrays: each is its own sum and mean."""
        del op
        return values

    def all_gather(self, values: list[jax.Array], axis: int) -> list[jax.Array]:
        """Returns the arrays."""
        for value in values:
            gather_axis(value.shape, axis, "all_gather")
        return values

    def first(self, value: jax.Array) -> jax.Array:
        """Returns the value."""
        return value

    def merge(
        self, strategy: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Calls `fn` at once."""
        with _context.cross_replica(strategy):
            return fn(strategy, *args, **kwargs)

    def create(self, make: Callable[[], Any], name: str) -> Any:
        """Makes the object."""
        del name
        return make()
