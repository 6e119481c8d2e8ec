"""The protocol by which a replica function combines values with the other replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax

from distlab.context.host import Host
from distlab.values.reduce_op import ReduceOp


class Collectives(Protocol):
    """The operations of one replica that involve the others."""

    def replica_id(self) -> Any:
        """Returns this replica's number, from 0: an int, or an int32 tracer."""

    def all_reduce(self, op: ReduceOp, values: list[jax.Array]) -> list[jax.Array]:
        """Returns each array's sum or mean over all replicas, the same on each."""

    def all_gather(self, values: list[jax.Array], axis: int) -> list[jax.Array]:
        """Returns the arrays of all replicas, concatenated along `axis`."""

    def first(self, value: jax.Array) -> jax.Array:
        """Returns replica 0's value, on each replica; of several workers, each worker's first."""

    def last(self, value: jax.Array) -> jax.Array:
        """Returns the last replica's value; of several workers, each worker's last."""

    def sum_on_worker(self, value: jax.Array) -> jax.Array:
        """Returns the sum over all replicas; of several workers, over those of each worker."""

    def is_same(self, value: Any) -> bool:
        """Returns whether all replicas pass one and the same object, which none of them made."""

    def differ(self, number: complex) -> bool:
        """Returns whether replicas pass different Python numbers, each of which is a constant."""

    def merge(
        self, host: Host, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Calls `fn(host, *args, **kwargs)` once for all replicas, in cross-replica context."""

    def create(self, make: Callable[[], Any], name: str) -> Any:
        """Makes one object for all replicas, such as a variable."""


class MergingCollectives(Collectives, Protocol):
    """The collectives of a traced `merge_call`, which merges replicas into one."""

    def merged(self, nest: Any) -> Any:
        """Returns a nest with a per-replica value instead of each traced leaf."""

    def distributed(self, nests: list[Any]) -> Any:
        """Returns a nest of per-replica values, from the components of every replica."""
