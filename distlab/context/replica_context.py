"""The context of a replica function: its replica's number, and collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast, final

import jax

from distlab.context import scopes
from distlab.context.collectives import Collectives
from distlab.context.communication import require_options
from distlab.context.host import Host
from distlab.devices.requirements import require_no_callback
from distlab.errors import ContextError
from distlab.values.checks import (
    as_array,
    checked_call,
    require_plain,
    summable,
)
from distlab.values.distributed import DistributedValues
from distlab.values.indexed_slices import IndexedSlices, is_slices
from distlab.values.reduce_op import ReduceOp


@final
class ReplicaContext:
    """The context of one replica (`tf.distribute.ReplicaContext`).

    `distlab.get_replica_context()` returns it inside a function that
    `strategy.run` runs.

    Attributes:
      strategy: The strategy that runs the replica.
      collectives: How this replica combines values with the others.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])
      >>> def step(x):
      ...     context = dl.get_replica_context()
      ...     return context.all_reduce("SUM", x * context.replica_id_in_sync_group)
      >>> [int(total) for total in strategy.run(step, args=(10,)).values]
      [30, 30, 30]
    """

    def __init__(self, strategy: Host, collectives: Collectives) -> None:
        self.strategy = strategy
        self.collectives = collectives

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas that run this function."""
        return self.strategy.num_replicas_in_sync

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices that the replicas run on (TensorFlow 1's property).

        A traced function stands for all replicas, so these are the devices of all
        replicas; in an eager function, it is this replica's device only.
        """
        names = self.strategy.device_names
        replica = self.collectives.replica_id()
        return (names[replica],) if not isinstance(replica, jax.Array) and len(names) > 1 else names

    @property
    def replica_id_in_sync_group(self) -> Any:
        """This replica's number, from 0 to `num_replicas_in_sync - 1`.

        In a traced function it is an int32 tracer: use it in JAX expressions
        (`jnp.where`, indexing), not in a Python `if`.

        Raises:
          ContextError: The traced function of this context has returned.
        """
        try:
            return self.collectives.replica_id()
        except NameError as error:  # outside of the trace, JAX has no axis of replicas
            raise ContextError(
                "replica_id_in_sync_group of a replica context was read outside of the replica "
                "function that the context belongs to. Return the number from the function instead."
            ) from error

    def all_reduce(self, reduce_op: ReduceOp | str, value: Any, options: Any = None) -> Any:
        """Reduces the replicas' values and returns the result on every replica.

        Differentiable: the gradient is the all-reduce of the gradients.

        Args:
          reduce_op: `ReduceOp.SUM`, `ReduceOp.MEAN`, or their name.
          value: An array, or a nest of arrays, of the same shape on each replica.
            Of `IndexedSlices` the rows of all replicas are joined.
          options: `CommunicationOptions`, hints that do not change results.

        Returns:
          The structure of `value`; each leaf is the sum or mean over the replicas.

        Raises:
          ReduceOpError: `reduce_op` is neither SUM nor MEAN.
          OptionError: `options` are no `CommunicationOptions`.
          ValueShapeError: A leaf is not an array, or the shapes differ.
          ContextError: The call is outside of the replica function of this context.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> def step(gradients):
          ...     return dl.get_replica_context().all_reduce("MEAN", gradients)
          >>> means = strategy.run(step, args=({"w": 4.0, "b": 1.0},))
          >>> float(means["w"].values[1])
          4.0
        """
        op = ReduceOp.of(reduce_op)
        require_options(options, "all_reduce")
        self._require_current("all_reduce")
        leaves, structure = jax.tree.flatten(value, is_leaf=_is_whole)
        arrays = [
            summable(as_array(leaf, "all_reduce"), op) for leaf in leaves if not is_slices(leaf)
        ]
        reduced = iter(self.collectives.all_reduce(op, arrays) if arrays or not leaves else [])
        results = [
            self._all_reduce_slices(op, leaf) if is_slices(leaf) else next(reduced)
            for leaf in leaves
        ]
        return jax.tree.unflatten(structure, results)

    def _all_reduce_slices(self, op: ReduceOp, slices: IndexedSlices) -> IndexedSlices:
        """Returns the rows of all replicas together, which is their sum, as in TensorFlow."""
        parts = [as_array(part, "all_reduce") for part in (slices.values, slices.indices)]
        values, indices = self.collectives.all_gather(parts, 0)
        if op is ReduceOp.MEAN:
            values = (values / self.num_replicas_in_sync).astype(values.dtype)
        return IndexedSlices(values, indices, slices.dense_shape)

    def all_gather(self, value: Any, axis: int, options: Any = None) -> Any:
        """Concatenates the replicas' values and returns the result on every replica.

        Differentiable: the gradient of a replica's part is the sum of its gradients
        on all replicas.

        Args:
          value: An array, or a nest of arrays, whose shapes may differ between
            replicas along `axis`.
          axis: The axis along which to concatenate.
          options: `CommunicationOptions`, hints that do not change results.

        Returns:
          The structure of `value`; each leaf holds the parts of all replicas, in
          replica order.

        Raises:
          OptionError: `options` are no `CommunicationOptions`.
          ValueShapeError: A leaf is a scalar, the axis is out of range, or other
            dimensions differ.
          ContextError: The call is outside of the replica function of this context.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> dataset = dl.data.Dataset.range(3).batch(3)
          >>> (batch,) = strategy.experimental_distribute_dataset(dataset)
          >>> def step(x):
          ...     return dl.get_replica_context().all_gather(x, axis=0)
          >>> strategy.run(step, args=(batch,)).values[1].tolist()
          [0, 1, 2]
        """
        require_options(options, "all_gather")
        self._require_current("all_gather")
        leaves, structure = jax.tree.flatten(value, is_leaf=_is_distributed)
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
          merge_fn: The function, which is called as `merge_fn(strategy, *args, **kwargs)`
            with the replicas' arguments merged into distributed values.
          args: This replica's arguments.
          kwargs: This replica's named arguments.

        Returns:
          The result of `merge_fn`, with this replica's component instead of each
          per-replica value.

        Raises:
          StructureError: `merge_fn` is not a function, or a generator or async function.
          ValueShapeError: `args` is not a tuple or list, or `kwargs` is not a dict.
          ContextError: The call is outside of the replica function of this context, or
            in cross-replica context.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> def mean(strategy, x):
          ...     return strategy.reduce("MEAN", x, axis=None)
          >>> def step(x):
          ...     return dl.get_replica_context().merge_call(mean, args=(x,))
          >>> [float(y) for y in strategy.run(step, args=(3.0,)).values]
          [3.0, 3.0]
        """
        self._require_current("merge_call")
        args, kwargs = checked_call("merge_call", merge_fn, args, kwargs)
        require_plain(merge_fn, "merge_call")
        return self.collectives.merge(self.strategy, merge_fn, args, kwargs)

    def _require_current(self, verb: str) -> None:
        if scopes.current_replica() is not self:
            raise ContextError(
                f"{verb} was called on a replica context outside of the replica function that the "
                "context belongs to. Call distlab.get_replica_context() inside the function."
            )

    def __repr__(self) -> str:
        """Shows the strategy."""
        return f"ReplicaContext({self.strategy!r})"


def _is_distributed(value: Any) -> bool:
    return isinstance(value, DistributedValues)


def _is_whole(value: Any) -> bool:
    return _is_distributed(value) or is_slices(value)


def get_replica_context() -> ReplicaContext:
    """Returns the replica context, or None in cross-replica context.

    Outside of any scope it is the context of the default strategy: replica 0 of 1.
    The return type omits None, because a replica function always has a context.

    Raises:
      ContextError: The caller is a function that a running step calls back.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> ids = strategy.run(lambda: dl.get_replica_context().replica_id_in_sync_group)
      >>> [int(number) for number in ids.values]
      [0, 1]
      >>> with strategy.scope():
      ...     print(dl.get_replica_context())
      None
    """
    require_no_callback("get_replica_context was called")
    return cast(ReplicaContext, scopes.current_replica())
