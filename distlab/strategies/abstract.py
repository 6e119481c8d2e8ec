"""What all strategies have in common: the verbs of `tf.distribute.Strategy`."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NoReturn

import jax

from distlab.collectives import gathering, reducing
from distlab.collectives.cross_device_ops import CrossDeviceOps, as_cross_device_ops
from distlab.context import scopes
from distlab.context.modes import RunOptions
from distlab.data import Dataset
from distlab.devices.layouts import Layout, OnePerReplica, Replicated
from distlab.devices.mesh import ReplicaMesh
from distlab.errors import ArgumentTypeError, ContextError
from distlab.input import distribute, legacy
from distlab.input.context import InputContext
from distlab.input.options import InputOptions, InputReplicationMode
from distlab.step import runner
from distlab.step.place import Place
from distlab.step.regroup import regroup
from distlab.strategies.extended import StrategyExtended
from distlab.values.checks import checked_call
from distlab.values.distributed import DistributedValues, PerReplica, stack
from distlab.values.last_batch import LastBatch
from distlab.values.reduce_op import ReduceOp
from distlab.values.value_context import ValueContext
from distlab.variables.variable import Variable


class Strategy(ABC):  # noqa: B024 - what makes it abstract is that devices must be chosen
    """Base of all strategies. Make one of the final classes, not this.

    Attributes:
      distributed: false for the default strategy alone.
      reads_per_replica: whether each replica may read a dataset of its own.
      cross_device_ops: how it adds up the replicas' values.
      extended: what libraries and ported code use beyond the verbs.
    """

    distributed: ClassVar[bool] = True
    reads_per_replica: ClassVar[bool] = False

    def __init__(self, place: Place, cross_device_ops: CrossDeviceOps | None = None) -> None:
        if type(self) is Strategy:
            raise ArgumentTypeError(
                "Strategy is what all strategies have in common and can't be made itself. Make a "
                "MirroredStrategy, or another one of the final classes."
            )
        self.cross_device_ops = as_cross_device_ops(cross_device_ops)
        self.extended = StrategyExtended(self)
        self._place = place

    @property
    def place(self) -> Place:
        """Where this strategy's replicas run, as seen from the calling thread."""
        return self._place

    @property
    def number(self) -> int:
        """The strategy's number in this process; events name it."""
        return self.place.number

    @property
    def batch(self) -> LastBatch:
        """The batch that was handed out last."""
        return self.place.batch

    @property
    def mesh(self) -> ReplicaMesh:
        """The replicas' devices as a JAX mesh."""
        return self.place.mesh

    def variable_layout(self, *, per_replica: bool) -> Layout:
        """Returns where the copies of a new variable lie.

        Args:
          per_replica: Whether each replica has a value of its own (ON_READ).
        """
        return OnePerReplica(self.mesh) if per_replica else Replicated(self.mesh)

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas a step runs on."""
        return self.mesh.replicas

    @property
    def device_names(self) -> tuple[str, ...]:
        """The device of each replica, such as `"CPU:0"`, in replica order."""
        return self.mesh.names

    @property
    def parameter_device_names(self) -> tuple[str, ...]:
        """The devices that hold variables."""
        return self.device_names

    @property
    def input_context(self) -> InputContext:
        """What a function that makes this worker's input is told."""
        return InputContext(num_replicas_in_sync=self.num_replicas_in_sync)

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
        return scopes.scope(self)

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
        return runner.run(self, self.place, fn, args, kwargs, options=options)

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
        return reducing.reduce(self, reduce_op, value, axis)

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
        return gathering.gather(self, value, axis)

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
        scopes.require_cross_replica("experimental_distribute_values_from_function", self)
        checked_call("experimental_distribute_values_from_function", value_fn, (), None)
        replicas = self.num_replicas_in_sync
        return regroup([value_fn(ValueContext(i, replicas)) for i in range(replicas)], self.mesh)

    def experimental_distribute_dataset(
        self, dataset: Any, options: InputOptions | None = None
    ) -> Any:
        """Divides a dataset's batches over the replicas.

        Each element is a global batch of n examples. Each replica gets
        ceil(n / replicas) of them as long as there are any, so that the last
        ones may get fewer, or none. Datasets that read files, and those with
        AutoShardPolicy.OFF, are instead cut into batches of single replicas
        that the replicas take in turn, as in TensorFlow.

        Args:
          dataset: a `distlab.data.Dataset`, or any iterable of batches.
          options: how to bring batches to the devices.

        Returns:
          A `DistributedDataset`, whose elements have a `PerReplica` at each leaf
          (with one replica, a plain array). The default strategy returns the
          dataset itself.

        Raises:
          NotBatchedError: the elements have no batch dimension, and there is
            more than one replica.
          StructureError: it is no dataset.
          UnsupportedError: the replication mode is PER_REPLICA.
          InvalidArgumentError: its AutoShardPolicy does not fit it.
        """
        return distribute.distribute_dataset(self, dataset, options)

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
    ) -> Any:
        """Lets each replica take one batch a step of a dataset that a function makes.

        Nothing is divided or sharded: the function does so, by what its
        `InputContext` tells. It is called once, at once; later iterations start
        its dataset again. In the last step some replicas may find no batch and
        get an empty one; when all shapes are known (drop_remainder), that step
        is left out, as in TensorFlow.

        Args:
          dataset_fn: takes an `InputContext` and returns a dataset with batches
            for single replicas.
          options: how to bring batches to the devices; with
            `InputReplicationMode.PER_REPLICA` the function is called for each
            replica, which then reads a dataset of its own.

        Returns:
          A `DistributedDataset`. The default strategy returns the function's
          dataset.

        Raises:
          ArgumentTypeError: `dataset_fn` is no function.
          UnsupportedError: PER_REPLICA, and this is no `MirroredStrategy`.
        """
        return distribute.distribute_from_function(self, dataset_fn, options)

    def experimental_make_numpy_dataset(self, numpy_input: Any, session: Any = None) -> Dataset:
        """Makes a dataset of the rows of arrays, to be batched and distributed.

        Args:
          numpy_input: a nest of arrays of one length, shape `[rows, ...]`. A
            list of arrays is one array, stacked.
          session: taken for TensorFlow's sake.

        Returns:
          A dataset of `rows` elements of shape `[...]`.

        Raises:
          ValueShapeError: their lengths differ, or one is a scalar.
        """
        del session
        return Dataset.from_tensor_slices(numpy_input)

    def make_dataset_iterator(self, dataset: Any) -> legacy.InputIterator:
        """Makes a TensorFlow 1 iterator that divides a dataset's batches.

        Args:
          dataset: as in `experimental_distribute_dataset`.

        Returns:
          An iterator with `initialize()` and `get_next()`.

        Raises:
          NotBatchedError: as `experimental_distribute_dataset`.
        """
        return legacy.dataset_iterator(self, dataset)

    def make_input_fn_iterator(
        self,
        input_fn: Callable[[InputContext], Any],
        replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER,
    ) -> legacy.InputIterator:
        """Makes a TensorFlow 1 iterator in which each replica takes one batch a step.

        A last step for which some replicas have no batch is left out.

        Args:
          input_fn: takes an `InputContext` and returns a dataset, or a function
            that returns one replica's next element.
          replication_mode: PER_WORKER; nothing else is supported.

        Returns:
          An iterator with `initialize()` and `get_next()`.

        Raises:
          ArgumentValueError: another replication mode.
          ArgumentTypeError: `input_fn` is no function, or returns no dataset.
        """
        return legacy.input_fn_iterator(self, input_fn, replication_mode)

    def experimental_run(
        self, fn: Callable[..., Any], input_iterator: legacy.InputIterator | None = None
    ) -> Any:
        """Runs `fn` on the next element of an iterator (TensorFlow 1's `run`).

        Args:
          fn: the replica function; takes the element as its one argument.
          input_iterator: None: `fn` takes no argument.

        Returns:
          What `run` returns.

        Raises:
          OutOfRangeError: the data came to its end.
        """
        with self.scope():
            args = () if input_iterator is None else (input_iterator.get_next(),)
            return self.run(fn, args=args)

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
        if self.mesh.replicas == 1:
            return jax.device_put(leaf, self.mesh.whole)
        return stack([leaf] * self.num_replicas_in_sync, self.mesh)

    def unwrap(self, value: Any) -> list[Any]:
        """Is `experimental_local_results` as a list, TensorFlow 1's name for it."""
        return list(self.experimental_local_results(value))

    def colocate_vars_with(self, colocate_with_variable: Variable) -> AbstractContextManager[None]:
        """Is `extended.colocate_vars_with`, TensorFlow 1's place for it."""
        return self.extended.colocate_vars_with(colocate_with_variable)

    def experimental_run_v2(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] | list[Any] = (),
        kwargs: dict[str, Any] | None = None,
        options: RunOptions | None = None,
    ) -> Any:
        """Is `run`, under the name that it had first."""
        return self.run(fn, args, kwargs, options)

    def experimental_distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
    ) -> Any:
        """Is `distribute_datasets_from_function`, under the name that it had first."""
        return self.distribute_datasets_from_function(dataset_fn, options)

    def __enter__(self) -> NoReturn:
        """Refuses `with strategy:`.

        Raises:
          ContextError: always.
        """
        raise ContextError(
            f"A strategy is made current by its scope, and {self!r} was given to `with` itself. "
            "Write `with strategy.scope():`."
        )

    def __exit__(self, *_: object) -> None:  # noqa: B027 - `with` looks for it before it enters
        """Is never reached."""

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

    def _repr_html_(self) -> str:
        """Shows in notebooks which device each replica runs on."""
        from distlab.values.reprs import strategy_html

        return strategy_html(self)

    def __repr__(self) -> str:
        """Names the devices."""
        return f"{type(self).__name__}({', '.join(self.device_names)})"


def _has_components(value: Any) -> bool:
    return isinstance(value, DistributedValues | Variable)
