"""The collectives of the default strategy, which has one replica."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from distlab.collectives.shapes import gather_axis
from distlab.context import scopes
from distlab.context.host import Host
from distlab.values.reduce_op import ReduceOp


class LoneCollectives:
    """The collectives of a replica without others."""

    def replica_id(self) -> Any:
        """Returns 0."""
        return 0

    def all_reduce(self, op: ReduceOp, values: list[jax.Array]) -> list[jax.Array]:
        """Returns the arrays, each of which is its own sum and mean."""
        del op
        return values

    def all_gather(self, values: list[jax.Array], axis: int) -> list[jax.Array]:
        """Returns the arrays."""
        for value in values:
            gather_axis(value.shape, axis, "all_gather")
        return values

    def last(self, value: jax.Array) -> jax.Array:
        """Returns the value."""
        return value

    def sum_on_worker(self, value: jax.Array) -> jax.Array:
        """Returns the value."""
        return value

    def first(self, value: jax.Array) -> jax.Array:
        """Returns the value."""
        return value

    def is_same(self, value: Any) -> bool:
        """Returns False: there is no other replica."""
        del value
        return False

    def differ(self, number: complex) -> bool:
        """Returns False: there is no other replica."""
        del number
        return False

    def merge(
        self, host: Host, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Calls `fn` in cross-replica context."""
        with scopes.cross_replica(host):
            return fn(host, *args, **kwargs)

    def create(self, make: Callable[[], Any], name: str) -> Any:
        """Makes the object."""
        del name
        return make()
