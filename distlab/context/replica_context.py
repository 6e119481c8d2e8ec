"""What a replica function can ask about, and do with, the replica it runs on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast, final

import jax

from distlab.context import scopes
from distlab.context.collectives import Collectives
from distlab.context.host import Host
from distlab.errors import ContextError
from distlab.values.checks import as_array, checked_call
from distlab.values.reduce_op import ReduceOp


@final
class ReplicaContext:
    """The context of one replica (`tf.distribute.ReplicaContext`).

    Get it with `distlab.get_replica_context()` inside a function given to
    `strategy.run`.

    Attributes:
      strategy: the strategy that runs the replica.
      collectives: how this replica combines values with the others.
    """

    def __init__(self, strategy: Host, collectives: Collectives) -> None:
        self.strategy = strategy
        self.collectives = collectives

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas run this function."""
        return self.strategy.num_replicas_in_sync

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices that the replicas run on (TensorFlow 1's name).

        In a traced function one Python call stands for all replicas, so it
        names all of their devices; in an eager one just this replica's.
        """
        names = self.strategy.device_names
        replica = self.collectives.replica_id()
        return (names[replica],) if isinstance(replica, int) and len(names) > 1 else names

    @property
    def replica_id_in_sync_group(self) -> Any:
        """This replica's number, from 0 to `num_replicas_in_sync - 1`.

        In a traced function it is an int32 tracer: use it in JAX expressions
        (`jnp.where`, indexing), not in a Python `if`.

        Raises:
          ContextError: asked after a traced function.
        """
        try:
            return self.collectives.replica_id()
        except NameError as error:  # JAX knows no replicas outside of the trace
            raise ContextError(
                "replica_id_in_sync_group was asked of a replica context outside of the replica "
                "function that it belongs to. Return the number from the function instead."
            ) from error

    def all_reduce(self, reduce_op: ReduceOp | str, value: Any, options: Any = None) -> Any:
        """Combines the replicas' values and gives every replica the result.

        Differentiable: the gradient is the all-reduce of the gradients.

        Args:
          reduce_op: `ReduceOp.SUM`, `ReduceOp.MEAN`, or their name.
          value: an array, or a nest of arrays, of the same shape on each
            replica.
          options: `CommunicationOptions`, hints that change no value.

        Returns:
          The structure of `value`, each leaf the sum or mean over replicas.

        Raises:
          ReduceOpError: there is no such reduction.
          ValueShapeError: a leaf is not an array, or shapes differ.
          ContextError: called outside of the run that this context belongs to.
        """
        del options
        op = ReduceOp.of(reduce_op)
        self._require_current("all_reduce")
        leaves, structure = jax.tree.flatten(value)
        arrays = [as_array(leaf, "all_reduce") for leaf in leaves]
        return jax.tree.unflatten(structure, self.collectives.all_reduce(op, arrays))

    def all_gather(self, value: Any, axis: int, options: Any = None) -> Any:
        """Gives every replica all replicas' values, one after another.

        Differentiable: the gradient of a replica's part is the sum of what all
        replicas ask of it.

        Args:
          value: an array, or a nest of arrays, whose shapes may differ between
            replicas along `axis`.
          axis: the dimension to put them one after another in.
          options: `CommunicationOptions`, hints that change no value.

        Returns:
          The structure of `value`, each leaf as long along `axis` as all
          replicas' together.

        Raises:
          ValueShapeError: a scalar, no such axis, or other dimensions differ.
          ContextError: called outside of the run that this context belongs to.
        """
        del options
        self._require_current("all_gather")
        leaves, structure = jax.tree.flatten(value)
        arrays = [as_array(leaf, "all_gather") for leaf in leaves]
        return jax.tree.unflatten(structure, self.collectives.all_gather(arrays, axis))

    def merge_call(
        self,
        merge_fn: Callable[..., Any],
        args: tuple[Any, ...] | list[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Calls a function once for all replicas, in cross-replica context.

        Args:
          merge_fn: called as `merge_fn(strategy, *args, **kwargs)`, with the
            replicas' arguments merged into distributed values.
          args: this replica's arguments.
          kwargs: this replica's named arguments.

        Returns:
          What `merge_fn` returns; of per-replica values this replica's
          component.

        Raises:
          StructureError: `merge_fn` is no function.
          ValueShapeError: the arguments are no tuple and dict.
          ContextError: called outside of the run that this context belongs to,
            or in cross-replica context.
        """
        self._require_current("merge_call")
        args, kwargs = checked_call("merge_call", merge_fn, args, kwargs)
        return self.collectives.merge(self.strategy, merge_fn, args, kwargs)

    def _require_current(self, verb: str) -> None:
        if scopes.current_replica() is not self:
            raise ContextError(
                f"{verb} was called on a replica context outside of the replica function that it "
                "belongs to. Ask for distlab.get_replica_context() inside the function."
            )

    def __repr__(self) -> str:
        """Names the strategy."""
        return f"ReplicaContext({self.strategy!r})"


def get_replica_context() -> ReplicaContext:
    """Returns the replica context, or None in cross-replica context.

    Outside of any scope it is the default strategy's: replica 0 of 1. The None
    is left out of the type: in a replica function, where one asks for the
    context to use it, there always is one.
    """
    return cast(ReplicaContext, scopes.current_replica())
