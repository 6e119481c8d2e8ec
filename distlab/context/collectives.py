"""How a replica combines values with the others, from inside a replica function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax

from distlab.context.host import Host
from distlab.values.reduce_op import ReduceOp


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
        self, host: Host, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Calls `fn(host, *args, **kwargs)` once for all, in cross-replica context."""

    def create(self, make: Callable[[], Any], name: str) -> Any:
        """Makes one object for all replicas, such as a variable."""


class MergingCollectives(Collectives, Protocol):
    """What code in a traced `merge_call` needs of the replicas that it merges."""

    def merged(self, nest: Any) -> Any:
        """Returns a nest with each traced leaf as a per-replica value."""
