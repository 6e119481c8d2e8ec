"""What a replica function can ask about, and do with, the replica it runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import jax

from distlab import _collectives
from distlab._reduce_op import ReduceOp

if TYPE_CHECKING:
    from distlab._collectives import Collectives
    from distlab.strategies.abstract import Strategy


@final
class ReplicaContext:
    """The context of one replica (`tf.distribute.ReplicaContext`).

    Get it with `distlab.get_replica_context()` inside a function given to
    `strategy.run`.

    Attributes:
      strategy: the strategy that runs the replica.
      collectives: how this replica talks to the others.
    """

    def __init__(self, strategy: Strategy, collectives: Collectives) -> None:
        self.strategy = strategy
        self.collectives = collectives

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas run this function."""
        return self.strategy.num_replicas_in_sync

    @property
    def replica_id_in_sync_group(self) -> Any:
        """This replica's number, from 0 to `num_replicas_in_sync - 1`.

        In a traced function it is an int32 tracer: use it in JAX expressions
        (`jnp.where`, indexing), not in a Python `if`.
        """
        return self.collectives.replica_id()

    def all_reduce(self, reduce_op: ReduceOp | str, value: Any) -> Any:
        """Combines the replicas' values and gives every replica the result.

        Differentiable: the gradient is the all-reduce of the gradients.

        Args:
          reduce_op: `ReduceOp.SUM`, `ReduceOp.MEAN`, or their name.
          value: an array, or a nest of arrays, of the same shape on each
            replica.

        Returns:
          The structure of `value`, each leaf the sum or mean over replicas.

        Raises:
          ReduceOpError: there is no such reduction.
          ValueShapeError: a leaf is not an array, or shapes differ.
        """
        op = ReduceOp.of(reduce_op)
        leaves, structure = jax.tree.flatten(value)
        arrays = [_collectives.as_array(leaf, "all_reduce") for leaf in leaves]
        return jax.tree.unflatten(structure, self.collectives.all_reduce(op, arrays))

    def __repr__(self) -> str:
        """Names the strategy."""
        return f"ReplicaContext({self.strategy!r})"
