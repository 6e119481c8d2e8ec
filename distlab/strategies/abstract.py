"""What all strategies have in common: the verbs of `tf.distribute.Strategy`."""

from __future__ import annotations

import itertools
import time
from abc import ABC
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import jax

from distlab import _context, _devices, _gather, _reduce, _seam, _values, events
from distlab._devices import DeviceLike
from distlab._fed import Fed
from distlab._mesh import ReplicaMesh, replica_mesh
from distlab._modes import RunOptions
from distlab._reduce_op import ReduceOp
from distlab._regroup import regroup
from distlab._run import Runner
from distlab._storage import Storage
from distlab._value_context import ValueContext
from distlab._values import DistributedValues, PerReplica
from distlab._variable import Variable
from distlab.cross_device_ops import CrossDeviceOps, as_cross_device_ops
from distlab.errors import ContextError
from distlab.input.dataset import DistributedDataset
from distlab.strategies.extended import StrategyExtended

_numbers = itertools.count()


class Strategy(ABC):  # noqa: B024 - what makes it abstract is that devices must be chosen
    """Base of all strategies. Make one of the final classes, not this.

    Attributes:
      distributed: false for the default strategy alone.
      number: the strategy's number in this process; events name it.
      fed: the batch it gave out last.
      cross_device_ops: how it adds up the replicas' values.
      extended: what libraries and ported code use beyond the verbs.
    """

    distributed: ClassVar[bool] = True

    def __init__(
        self, devices: Iterable[DeviceLike], cross_device_ops: CrossDeviceOps | None = None
    ) -> None:
        self.number = next(_numbers)
        self.fed = Fed()
        self.cross_device_ops = as_cross_device_ops(cross_device_ops)
        self.extended = StrategyExtended(self)
        self._mesh = replica_mesh(_devices.find(list(devices)))
        self._runner = Runner(self)
        recorder = _seam.recorder()
        if recorder.enabled:
            recorder.emit(
                events.Strategy(
                    time_ns=time.monotonic_ns(),
                    strategy=self.number,
                    name=type(self).__name__,
                    devices=list(self.device_names),
                )
            )

    @property
    def mesh(self) -> ReplicaMesh:
        """The replicas' devices as a JAX mesh."""
        return self._mesh

    def store(self, value: jax.Array, *, per_replica: bool) -> Storage:
        """Lays out the value of a new variable on this strategy's devices.

        Args:
          value: the initial value.
          per_replica: whether each replica has a value of its own (ON_READ).
        """
        return Storage(value, "per_replica" if per_replica else "replicated", self.mesh)

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas a step runs on."""
        return self.mesh.size

    @property
    def device_names(self) -> tuple[str, ...]:
        """The device of each replica, such as `"CPU:0"`, in replica order."""
        return self.mesh.names

    @property
    def parameter_device_names(self) -> tuple[str, ...]:
        """The devices that hold variables."""
        return self.device_names

    @property
    def cluster_resolver(self) -> Any:
        """None: the strategy knows of no other processes."""
        return None

    def scope(self) -> AbstractContextManager[Strategy]:
        """Returns a context manager that makes this strategy current.

        Variables made inside are placed on its devices. A scope may be entered
        again inside itself.

        Raises:
          ContextError: on entering, inside another strategy's scope or inside a
            function that `run` executes.
        """
        return _context.scope(self)

    def run(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] | list[Any] = (),
        kwargs: dict[str, Any] | None = None,
        options: RunOptions | None = None,
    ) -> Any:
        """Runs `fn` on every replica, each with its own part of the arguments.

        `fn` is traced and compiled once for each set of shapes, as by
        `jax.jit`; its Python runs only then. The call returns before the
        devices are done. At most 16 steps are in flight.

        Args:
          fn: the replica function.
          args: its arguments: nests whose `PerReplica` leaves are divided over
            the replicas; all other arrays and numbers go to each replica whole.
          kwargs: its named arguments, likewise.
          options: how to run it this time.

        Returns:
          What `fn` returns, with a `PerReplica` at each computed leaf (with one
          replica, a plain array). What is one and the same object for all
          replicas (None, a Python number, a variable) comes back as it is.

        Raises:
          ContextError: called in a replica function or another scope.
          StructureError: a per-replica argument is not one of this strategy,
            or replicas with different shapes return different structures.
          NeedsPythonError: `fn` needs a number while it is being traced.
        """
        return self._runner.run(fn, args, kwargs, options)

    def reduce(self, reduce_op: ReduceOp | str, value: Any, axis: Any) -> Any:
        """Combines the replicas' values into one, from cross-replica context.

        Args:
          reduce_op: `ReduceOp.SUM`, `ReduceOp.MEAN`, or their name.
          value: a per-replica value, or a nest of them.
          axis: None combines the components element by element. A number or
            tuple also reduces these axes of each component; MEAN then divides
            by the number of elements on all replicas, so a partial batch is
            weighed right.

        Returns:
          The structure of `value` with plain arrays, on the first replica's
          device.

        Raises:
          ReduceOpError: there is no such reduction.
          ValueShapeError: shapes differ, an axis is out of range, or a plain
            value is to be summed over several replicas.
          ContextError: called in a replica function.
        """
        return _reduce.reduce(self, reduce_op, value, axis)

    def gather(self, value: Any, axis: int) -> Any:
        """Puts the replicas' values one after another, from cross-replica context.

        Args:
          value: a per-replica value, or a nest of them, whose shapes may differ
            along `axis`.
          axis: the dimension to put them one after another in.

        Returns:
          The structure of `value` with plain arrays, on the first replica's
          device.

        Raises:
          ValueShapeError: scalars, no such axis, other dimensions differ, or a
            plain value with several replicas.
          ContextError: called in a replica function.
        """
        return _gather.gather(self, value, axis)

    def experimental_distribute_values_from_function(
        self, value_fn: Callable[[ValueContext], Any]
    ) -> Any:
        """Makes a per-replica value by calling a function for each replica.

        Args:
          value_fn: takes a `ValueContext` that tells the replica's number, and
            returns that replica's value, or a nest of values.

        Returns:
          The values merged: a `PerReplica` at each leaf (with one replica, what
          `value_fn` returned).

        Raises:
          StructureError: the replicas' structures differ.
          ContextError: called in a replica function.
        """
        _context.require_cross_replica("experimental_distribute_values_from_function", self)
        replicas = self.num_replicas_in_sync
        return regroup([value_fn(ValueContext(i, replicas)) for i in range(replicas)], self.mesh)

    def experimental_distribute_dataset(self, dataset: Any) -> DistributedDataset:
        """Divides a dataset's batches over the replicas.

        Each element is a global batch. Every replica gets an equal part of it
        as long as there are enough examples: see `distlab.data`.

        Args:
          dataset: a `distlab.data.Dataset`, or any iterable of batches.

        Returns:
          An iterable whose elements have a `PerReplica` at each leaf (with one
          replica, a plain array).

        Raises:
          NotBatchedError: the elements have no batch dimension, and there is
            more than one replica.
        """
        return DistributedDataset(dataset, self)

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """Returns the components of a per-replica value, in replica order.

        Args:
          value: a distributed value, a nest of them, or anything else, which
            comes back in a tuple of one.
        """
        leaves, structure = jax.tree.flatten(value, is_leaf=_has_components)
        if not any(map(_has_components, leaves)):
            return (value,)
        columns = [
            leaf.values if _has_components(leaf) else (leaf,) * self.num_replicas_in_sync
            for leaf in leaves
        ]
        return tuple(jax.tree.unflatten(structure, row) for row in zip(*columns, strict=True))

    def replicate(self, tree: Any) -> Any:
        """Gives every replica a copy of a state, for programs without variables.

        The copies go in and out of `run` without moving, so a loop that keeps
        its parameters and optimizer state in a pytree starts with this.

        Args:
          tree: a nest of array-likes.

        Returns:
          The structure of `tree` with a `PerReplica` of equal components at
          each leaf (with one replica, a plain array on its device).
        """
        return jax.tree.map(self._copies, tree)

    def _copies(self, leaf: Any) -> PerReplica | jax.Array:
        if self.mesh.size == 1:
            return jax.device_put(leaf, self.mesh.whole)
        return _values.stack([leaf] * self.num_replicas_in_sync, self.mesh)

    experimental_run_v2 = run

    def __copy__(self) -> Strategy:
        """Refuses: a strategy's variables and programs belong to one object.

        Raises:
          ContextError: always.
        """
        raise ContextError(
            f"{self!r} can't be copied: its variables and programs belong to it. Use it itself, or "
            "make another strategy."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Strategy:
        """Refuses, as `copy.copy` does."""
        return self.__copy__()

    def __repr__(self) -> str:
        """Names the devices."""
        return f"{type(self).__name__}({', '.join(self.device_names)})"


def _has_components(value: Any) -> bool:
    return isinstance(value, DistributedValues | Variable)
