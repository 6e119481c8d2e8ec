"""How replicas combine values from inside a replica function."""

from __future__ import annotations

from typing import Any, Protocol, final

import jax
import jax.numpy as jnp

from distlab._mesh import AXIS
from distlab._reduce_op import ReduceOp
from distlab.errors import ValueShapeError


class Collectives(Protocol):
    """What a replica context needs of the replicas that run beside it."""

    def replica_id(self) -> Any:
        """Returns this replica's number, from 0: an int, or an int32 tracer."""

    def all_reduce(self, op: ReduceOp, values: list[jax.Array]) -> list[jax.Array]:
        """Returns each array's sum or mean over all replicas, the same on each."""

    def first(self, value: jax.Array) -> jax.Array:
        """Returns replica 0's value, on each replica."""


@final
class TracedCollectives:
    """Replicas that are one compiled program: collectives on its mesh axis.

    The gradient of an all-reduce is the all-reduce of the gradients, as in
    `tf.distribute`: JAX transposes `psum` to `psum`.
    """

    def replica_id(self) -> Any:
        """Returns the position along the mesh axis, an int32 tracer."""
        return jax.lax.axis_index(AXIS)

    def all_reduce(self, op: ReduceOp, values: list[jax.Array]) -> list[jax.Array]:
        """Returns each array's sum or mean: one collective for all of them."""
        reduce = jax.lax.psum if op is ReduceOp.SUM else jax.lax.pmean
        return list(reduce(values, AXIS))  # type: ignore[no-untyped-call]

    def first(self, value: jax.Array) -> jax.Array:
        """Returns replica 0's value."""
        mine = jnp.where(self.replica_id() == 0, value, jnp.zeros_like(value))
        firsts: jax.Array = jax.lax.psum(
            mine.astype(jnp.int32) if value.dtype == bool else mine, AXIS
        )
        return firsts.astype(value.dtype)


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

    def first(self, value: jax.Array) -> jax.Array:
        """Returns the value."""
        return value


def as_array(value: Any, verb: str) -> jax.Array:
    """Returns a leaf as an array.

    Raises:
      ValueShapeError: it is not something that has numbers.
    """
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueShapeError(
            f"{verb} combines arrays and numbers, got a {type(value).__name__}: {value!r:.80}."
        ) from error
