"""The base class of all strategies, with the verbs of `tf.distribute.Strategy`."""

from __future__ import annotations

import time
from abc import ABC
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import jax
import numpy as np
from jax.sharding import PartitionSpec

from distlab.collectives import gathering, reducing
from distlab.collectives.cross_device_ops import CrossDeviceOps, as_cross_device_ops
from distlab.context import scopes
from distlab.context.modes import RunOptions
from distlab.data import Dataset
from distlab.devices import in_flight
from distlab.devices.layouts import (
    Divided,
    Layout,
    NewVariable,
    OnePerReplica,
    OnModelAxis,
    Replicated,
)
from distlab.devices.mesh import ReplicaMesh
from distlab.devices.requirements import require_not_staged
from distlab.errors import ContextError
from distlab.events import sink
from distlab.input import distribute, legacy
from distlab.input.context import InputContext
from distlab.input.options import InputOptions, InputReplicationMode
from distlab.processes import group
from distlab.processes.boundary import verb
from distlab.step import runner
from distlab.step.functions.holders import is_equinox_module, require_no_state_holder
from distlab.step.functions.identity import is_static
from distlab.step.programs.place import Place
from distlab.step.programs.results import own_arrays, regroup
from distlab.strategies.divided import DividedVariables
from distlab.strategies.extended import StrategyExtended
from distlab.strategies.model_axis import ModelLayouts
from distlab.uncopied import Uncopied
from distlab.values import copy_events
from distlab.values.checks import (
    as_array,
    checked_call,
    function_name,
    require_alive,
    require_plain,
)
from distlab.values.distributed import DistributedValues, stack
from distlab.values.last_batches import LastBatches
from distlab.values.operators import ArrayOperators
from distlab.values.plain_arrays import unshared
from distlab.values.reduce_op import ReduceOp
from distlab.values.sharded import as_distributed
from distlab.values.stacks import require_no_stack
from distlab.values.value_context import ValueContext
from distlab.values.wide_integers import require_kept
from distlab.variables.remote_storage import ValueServers
from distlab.variables.sharded_variable import ShardedVariable
from distlab.variables.variable import Variable


class Strategy(Uncopied, ABC):
    """The base class of all strategies (`tf.distribute.Strategy`).

    Args:
      place: The place of the replicas.
      cross_device_ops: The algorithm that adds up the replicas' values.

    Attributes:
      distributed: Whether values are distributed; False for the default strategy alone.
      reads_per_replica: Whether each replica may read a dataset of its own.
      keeps_one_copy: Whether all replicas share one copy of each variable.
      cross_device_ops: The algorithm that adds up the replicas' values.
      extended: The methods for libraries and ported code.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     weight = dl.Variable(2.0)
      >>> dataset = dl.data.Dataset.range(4).batch(4)
      >>> for x in strategy.experimental_distribute_dataset(dataset):
      ...     losses = strategy.run(lambda x: (weight * x).sum(), args=(x,))
      >>> float(strategy.reduce("MEAN", losses, axis=None))
      6.0
    """

    distributed: ClassVar[bool] = True
    reads_per_replica: ClassVar[bool] = False
    keeps_one_copy: ClassVar[bool] = False
    _uncopied_error = ContextError  # a RuntimeError, as in TensorFlow
    _uncopied: ClassVar[str] = (
        "{0!r} can't be copied or pickled: its devices, variables and programs belong to it and to "
        "this process. Use the strategy itself, or make another one where one is needed."
    )

    def __init__(self, place: Place, cross_device_ops: CrossDeviceOps | None = None) -> None:
        self.cross_device_ops = as_cross_device_ops(cross_device_ops)
        self.extended = StrategyExtended(self)
        self.layouts = ModelLayouts({})
        self.divided = DividedVariables(shard_variables=False)
        self._place = place

    @property
    def kind(self) -> str:
        """The name of its class, of a subclass elsewhere that of distlab's; events name it."""
        kinds = (one for one in type(self).__mro__ if one.__module__.startswith("distlab."))
        return next(kinds).__name__

    @property
    def place(self) -> Place:
        """The place of this strategy's replicas, for the calling thread."""
        return self._place

    @property
    def number(self) -> int:
        """The strategy's number in this process; events name it."""
        return self.place.number

    @property
    def batch(self) -> LastBatches:
        """The last batches of distributed datasets."""
        return self.place.batch

    @property
    def mesh(self) -> ReplicaMesh:
        """The replicas' devices as a JAX mesh."""
        return self.place.mesh

    def variable_layout(self, *, per_replica: bool, of: NewVariable | None = None) -> Layout:
        """Returns the layout of a new variable.

        Args:
          per_replica: Whether each replica has a value of its own (ON_READ).
          of: The variable; None for the layout of any.

        Raises:
          ShardingError: The layout that was asked for can't divide its value.
        """
        if per_replica:
            return OnePerReplica(self.mesh)
        spec = PartitionSpec() if of is None else self.layouts.spec(of, self.mesh.model)
        if spec:
            return OnModelAxis(self.mesh, spec)
        if of is None or of.layout is not None:
            return Replicated(self.mesh)
        axis = self.divided.axis(of, self.mesh.replicas)
        return Replicated(self.mesh) if axis is None else Divided(self.mesh, axis)

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas that run a step.

        Example:
          >>> import distlab as dl
          >>> dl.MirroredStrategy(["CPU:0", "CPU:1"]).num_replicas_in_sync
          2
        """
        return self.mesh.replicas

    @property
    def device_names(self) -> tuple[str, ...]:
        """The device of each replica, in replica order.

        Example:
          >>> import distlab as dl
          >>> dl.MirroredStrategy(["CPU:0", "CPU:1"]).device_names
          ('CPU:0', 'CPU:1')
        """
        return self.mesh.names

    @property
    def parameter_device_names(self) -> tuple[str, ...]:
        """The devices that hold variables; of several workers, this one's."""
        return self.local_device_names

    @property
    def local_device_names(self) -> tuple[str, ...]:
        """The device of each replica of this process, in replica order."""
        mesh = self.mesh
        return tuple(mesh.names[replica] for replica in mesh.local_replicas)

    @property
    def reads_here(self) -> bool:
        """True where the calling thread may read the replicas' datasets."""
        return True

    @property
    def input_context(self) -> InputContext:
        """The argument of a dataset function on this worker."""
        processes = group.across(self.mesh)
        workers, worker = (1, 0) if processes is None else (processes.count, processes.index)
        return InputContext(workers, worker, self.num_replicas_in_sync)

    @property
    def cluster_resolver(self) -> Any:
        """The resolver of the strategy's cluster; None for a strategy without one."""
        return None

    def scope(self) -> AbstractContextManager[Strategy]:
        """Returns a context manager that makes this strategy current.

        Variables made inside are placed on its devices. A scope may be entered
        again inside itself.

        Raises:
          ContextError: The scope is entered inside another strategy's scope, or inside
            a function that `run` executes.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> with strategy.scope():
          ...     counter = dl.Variable(0, name="counter")
          >>> len(counter.values)
          2
        """
        return scopes.Scope(self)

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
        devices are done. At most 16 steps that communicate are in flight.

        Args:
          fn: The replica function.
          args: Its arguments: nests in which each replica receives its component of
            every `PerReplica` leaf, and all other leaves whole.
          kwargs: Its named arguments, likewise.
          options: Options for this call.

        Returns:
          The result of `fn`, with a `PerReplica` at each computed leaf (with one
          replica, a plain array). A leaf that `fn` returns as `Mirrored`, which
          declares that all replicas hold the same, comes back as one `Mirrored` array.
          A leaf that is the same object on all replicas (None, a Python number, a
          variable) is returned unchanged. Of another object that a compiled `fn`
          makes, such as a set, each call returns a copy; all calls share what
          something else holds, too, and what can't be copied, such as a lock.

        Raises:
          ContextError: The call is in a replica function or in another strategy's scope.
          StructureError: A per-replica argument belongs to another strategy,
            replicas with different shapes return different structures, a result
            that is declared `Mirrored` may differ between replicas, or a compiled
            `fn` returns an iterator, or an object that hides what was computed.
          NeedsPythonError: `fn` needs a number while it is traced.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> def replica_fn(x):
          ...     return dl.get_replica_context().replica_id_in_sync_group + x
          >>> strategy.run(replica_fn, args=(10,)).values
          (Array(10, dtype=int32), Array(11, dtype=int32))
        """
        return self._run(fn, args, kwargs, options)

    experimental_run_v2 = run
    """`run`, under its first name in TensorFlow."""

    def _run(
        self, fn: Callable[..., Any], args: Any, kwargs: Any, options: RunOptions | None
    ) -> Any:
        """Runs `fn` as this kind of strategy does; see `run`."""
        return runner.run(self, self.place, fn, args, kwargs, options=options)

    def reduce(self, reduce_op: ReduceOp | str, value: Any, axis: Any) -> Any:
        """Combines the replicas' values into one, from cross-replica context.

        Args:
          reduce_op: `ReduceOp.SUM`, `ReduceOp.MEAN`, or the name of one.
          value: A per-replica value, or a nest of them.
          axis: None combines the components element by element. A number or
            tuple also reduces these axes of each component; MEAN then divides
            by the number of elements on all replicas, so that a partial batch has
            its right weight.

        Returns:
          The structure of `value` with plain arrays, on the first replica's
          device.

        Raises:
          ReduceOpError: `reduce_op` is not a reduction.
          ValueShapeError: The shapes differ, an axis is out of range, or a plain
            value would be summed over several replicas.
          ContextError: The call is in a replica function.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> dataset = dl.data.Dataset.range(3).batch(3)
          >>> x = next(iter(strategy.experimental_distribute_dataset(dataset)))
          >>> [part.tolist() for part in x.values]
          [[0, 1], [2]]
          >>> float(strategy.reduce("MEAN", x, axis=0))
          1.0
        """
        return reducing.reduce(self, reduce_op, value, axis)

    def gather(self, value: Any, axis: int) -> Any:
        """Concatenates the replicas' values, from cross-replica context.

        Args:
          value: A per-replica value, or a nest of them, whose shapes may differ
            along `axis`.
          axis: The dimension to concatenate along.

        Returns:
          The structure of `value` with plain arrays, on the first replica's
          device.

        Raises:
          ValueShapeError: The values are scalars, the axis is out of range, other
            dimensions differ, or a plain value is gathered from several replicas.
          ContextError: The call is in a replica function.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> dataset = dl.data.Dataset.range(3).batch(3)
          >>> x = next(iter(strategy.experimental_distribute_dataset(dataset)))
          >>> strategy.gather(x, axis=0)
          Array([0, 1, 2], dtype=int32)
        """
        return gathering.gather(self, value, axis)

    @property
    def value_servers(self) -> ValueServers | None:
        """The parameter servers of other processes that hold variables; None without any."""
        return None

    def make_variable(
        self, make: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]
    ) -> Any:
        """Returns the variable that `make` makes of the arguments: it is whole."""
        return make(arguments)

    def beside(self, variable: Variable | ShardedVariable) -> AbstractContextManager[None]:
        """Does nothing: all variables of the strategy have the same devices."""
        del variable
        return nullcontext()

    @verb
    def experimental_distribute_values_from_function(
        self, value_fn: Callable[[ValueContext], Any]
    ) -> Any:
        """Makes a per-replica value by calling a function for each replica.

        Of several workers, each calls the function for its own replicas, and all must come here.

        Args:
          value_fn: Returns a replica's value, or a nest of values, from a
            `ValueContext` with the replica's number.

        Returns:
          The values merged: a `PerReplica` at each leaf (with one replica, the
          result of `value_fn`).

        Raises:
          StructureError: The replicas' structures differ, or `value_fn` is a generator or async
            function.
          ContextError: The call is in a replica function.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> strategy.experimental_distribute_values_from_function(
          ...     lambda context: 10.0 * context.replica_id_in_sync_group
          ... ).values
          (Array(0., dtype=float32), Array(10., dtype=float32))
        """
        scopes.require_cross_replica("experimental_distribute_values_from_function", self)
        checked_call("experimental_distribute_values_from_function", value_fn, (), None)
        require_plain(value_fn, "experimental_distribute_values_from_function")
        in_flight.require_open()
        replicas, merging = self.num_replicas_in_sync, scopes.merging()
        if merging is None:
            require_not_staged("experimental_distribute_values_from_function")
        # While all workers trace one program, it holds the values of all replicas.
        numbers = self.mesh.local_replicas if merging is None else range(replicas)
        made = (value_fn(ValueContext(i, replicas)) for i in numbers)
        nests = own_arrays(made) if len(numbers) > 1 else list(made)
        if merging is not None:
            return merging.distributed(nests)
        started = time.monotonic_ns()
        values = regroup(nests, self.mesh, wrap=True)
        _announce_values(value_fn, nests, self.place.number, started)
        return values

    def experimental_distribute_dataset(
        self, dataset: Any, options: InputOptions | None = None
    ) -> Any:
        """Divides a dataset's batches over the replicas.

        Each element is a global batch of n examples. Each replica receives
        ceil(n / replicas) of them while there are any, so that the last replicas
        may have fewer or none. As in TensorFlow, datasets that read files, and
        those with AutoShardPolicy.OFF, are instead cut into per-replica batches
        that the replicas take in turn.

        Args:
          dataset: A `distlab.data.Dataset`, or any iterable of batches.
          options: Options for reading and placing batches.

        Returns:
          A `DistributedDataset`, whose elements have a `PerReplica` at each leaf
          (with one replica, a plain array). The default strategy returns the
          dataset itself.

        Raises:
          NotBatchedError: The elements have no batch dimension, and there is
            more than one replica.
          StructureError: `dataset` is not a dataset.
          UnsupportedError: The replication mode is PER_REPLICA.
          InvalidArgumentError: The dataset's AutoShardPolicy does not fit it.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> dataset = dl.data.Dataset.range(6).batch(4)
          >>> for x in strategy.experimental_distribute_dataset(dataset):
          ...     print([part.tolist() for part in x.values])
          [[0, 1], [2, 3]]
          [[4], [5]]
        """
        return distribute.distribute_dataset(self, dataset, options)

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
    ) -> Any:
        """Distributes the per-replica batches of a dataset that a function makes.

        The function is called immediately, and later iterations restart its
        dataset. It must shard the data itself, by its `InputContext`. In each step
        every replica takes one batch. In the last step some replicas may have no
        batch and receive an empty one; as in TensorFlow, that step is left out
        when all shapes are static (drop_remainder).

        Args:
          dataset_fn: Returns a dataset of per-replica batches from an `InputContext`;
            or a function that returns the next batch, and ends the data with
            `StopIteration`.
          options: Options for reading and placing batches. With
            `InputReplicationMode.PER_REPLICA` the function is called for each
            replica, which then reads a dataset of its own.

        Returns:
          A `DistributedDataset`. The default strategy returns the function's
          dataset.

        Raises:
          ArgumentTypeError: `dataset_fn` is not a function.
          UnsupportedError: The mode is PER_REPLICA, and this is not a `MirroredStrategy`.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> def dataset_fn(context):
          ...     return dl.data.Dataset.range(8).batch(context.get_per_replica_batch_size(4))
          >>> for x in strategy.distribute_datasets_from_function(dataset_fn):
          ...     print([part.tolist() for part in x.values])
          [[0, 1], [2, 3]]
          [[4, 5], [6, 7]]
        """
        return distribute.distribute_from_function(self, dataset_fn, options)

    def experimental_make_numpy_dataset(self, numpy_input: Any, session: Any = None) -> Dataset:
        """Makes a dataset of the rows of arrays.

        Args:
          numpy_input: A nest of arrays of the shape `[rows, ...]`. A list of arrays
            is stacked to one array.
          session: Ignored; accepted for compatibility with TensorFlow 1.

        Returns:
          A dataset of `rows` elements of the shape `[...]`.

        Raises:
          ValueShapeError: The lengths differ, or an array is a scalar.

        Example:
          >>> import distlab as dl
          >>> import numpy as np
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> dataset = strategy.experimental_make_numpy_dataset(np.arange(6).reshape(3, 2))
          >>> [row.tolist() for row in dataset]
          [[0, 1], [2, 3], [4, 5]]
        """
        del session
        return Dataset.from_tensor_slices(numpy_input)

    def make_dataset_iterator(self, dataset: Any) -> legacy.InputIterator:
        """Makes a TensorFlow 1 iterator that divides a dataset's batches.

        Args:
          dataset: A `distlab.data.Dataset`, or any iterable of batches.

        Returns:
          An iterator with `initialize()` and `get_next()`.

        Raises:
          NotBatchedError: The elements have no batch dimension, and there is
            more than one replica.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> iterator = strategy.make_dataset_iterator(dl.data.Dataset.range(8).batch(4))
          >>> iterator.initialize()
          >>> [part.tolist() for part in iterator.get_next().values]
          [[0, 1], [2, 3]]
        """
        return legacy.dataset_iterator(self, dataset)

    def make_input_fn_iterator(
        self,
        input_fn: Callable[[InputContext], Any],
        replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER,
    ) -> legacy.InputIterator:
        """Makes a TensorFlow 1 iterator over per-replica batches.

        A last step in which some replicas have no batch is left out.

        Args:
          input_fn: Returns, from an `InputContext`, a dataset of per-replica batches
            or a function that returns a replica's next element, and ends the data with
            `StopIteration`.
          replication_mode: PER_WORKER; no other mode is supported.

        Returns:
          An iterator with `initialize()` and `get_next()`.

        Raises:
          ArgumentValueError: The replication mode is not PER_WORKER.
          ArgumentTypeError: `input_fn` is not a function, or does not return a dataset.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> iterator = strategy.make_input_fn_iterator(
          ...     lambda context: dl.data.Dataset.range(8).batch(2)
          ... )
          >>> [part.tolist() for part in iterator.get_next().values]
          [[0, 1], [2, 3]]
        """
        return legacy.input_fn_iterator(self, input_fn, replication_mode)

    def experimental_run(
        self, fn: Callable[..., Any], input_iterator: legacy.InputIterator | None = None
    ) -> Any:
        """Runs `fn` on the next element of an iterator (TensorFlow 1's `run`).

        Args:
          fn: The replica function, whose one argument is the element.
          input_iterator: The iterator; with None, `fn` has no argument.

        Returns:
          The result of `run`.

        Raises:
          OutOfRangeError: The data is exhausted.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> iterator = strategy.make_dataset_iterator(dl.data.Dataset.range(8).batch(4))
          >>> strategy.experimental_run(lambda x: x.sum(), iterator).values
          (Array(1, dtype=int32), Array(5, dtype=int32))
        """
        with self.scope():
            args = () if input_iterator is None else (input_iterator.get_next(),)
            return self.run(fn, args=args)

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """Returns the components of a per-replica value, in replica order.

        Of several workers, each has the components of its own replicas.

        Args:
          value: A distributed value, or a nest: it is returned once for each replica, with
            the replica's components. Any other value is returned in a tuple of one.

        Raises:
          ShardingError: An array is divided otherwise than into one part for each replica.
          ValueShapeError: An array is that of all components of a per-replica value.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> result = strategy.run(lambda x: {"double": 2 * x}, args=(3,))
          >>> strategy.experimental_local_results(result)[0]
          {'double': Array(6, dtype=int32, weak_type=True)}
        """
        if _has_components(value):
            components: tuple[Any, ...] = value.values
            return components
        structure: Any
        leaves, structure = jax.tree.flatten(value, is_leaf=_has_components)
        if self.num_replicas_in_sync > 1:
            leaves = [as_distributed(leaf, self.mesh, "The value") for leaf in leaves]
        if value is None or (structure == jax.tree.structure(0) and leaves[0] is value):
            return (value,)
        columns = [leaf.values if _has_components(leaf) else None for leaf in leaves]
        return tuple(
            jax.tree.unflatten(
                structure,
                [
                    leaf if column is None else column[replica]
                    for leaf, column in zip(leaves, columns, strict=True)
                ],
            )
            for replica in range(len(self.mesh.local_replicas))
        )

    def replicate(self, tree: Any) -> Any:
        """Copies a state to every replica, for programs without variables.

        `run` accepts and returns the copies without moving them, so a loop whose
        parameters and optimizer state are a pytree starts with this.

        Args:
          tree: A nest of array-likes. Other leaves, such as the activation functions of an
            Equinox module, stay as they are.

        Returns:
          The structure of `tree` with a `PerReplica` of equal components at
          each array (with one replica, a plain array on its device).

        Raises:
          ArgumentTypeError: An object in `tree` is changed in place, such as a Flax NNX model.
          ValueShapeError: A leaf is in a per-replica value already, or a number does not fit.
          DonatedError: An array was deleted.
          ContextError: The call is in a replica function, or in a function that JAX traces.

        Example:
          >>> import distlab as dl
          >>> import numpy as np
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> state = strategy.replicate({"w": np.zeros(3, np.float32)})
          >>> state = strategy.run(lambda s: {"w": s["w"] + 1}, args=(state,))
          >>> state["w"].values[1]
          Array([1., 1., 1.], dtype=float32)
        """
        scopes.require_cross_replica("replicate", self)
        require_not_staged("replicate")
        in_flight.require_not_forked()
        require_no_state_holder(tree, "The value to replicate")
        return jax.tree.map(self._copies, tree, is_leaf=is_equinox_module)

    def _copies(self, leaf: Any) -> Any:
        if is_equinox_module(leaf):
            return jax.tree.map(
                lambda part: self._copies(part) if hasattr(part, "dtype") else part, leaf
            )
        if isinstance(leaf, ArrayOperators):
            leaf = leaf.value()
        require_kept(leaf, "The value to replicate")
        if is_static(leaf):
            return leaf
        require_alive(leaf, "The value to replicate")
        require_no_stack(leaf, "The value to replicate")
        if type(leaf) is int:
            as_array(leaf, "replicate")
        if self.mesh.replicas == 1:
            return jax.device_put(unshared(leaf), self.mesh.whole)
        return stack([leaf] * len(self.mesh.local_replicas), self.mesh)

    def unwrap(self, value: Any) -> list[Any]:
        """Returns `experimental_local_results` as a list, as in TensorFlow 1.

        Args:
          value: A distributed value, or a nest of them.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> strategy.unwrap(strategy.run(lambda x: x + 1.0, args=(3,)))[1].item()
          4.0
        """
        return list(self.experimental_local_results(value))

    def colocate_vars_with(self, colocate_with_variable: Variable) -> AbstractContextManager[None]:
        """Returns `extended.colocate_vars_with(...)`, as in TensorFlow 1.

        Args:
          colocate_with_variable: A variable of this strategy.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> with strategy.scope():
          ...     weight = dl.Variable(1.0)
          ...     with strategy.colocate_vars_with(weight):
          ...         slot = dl.Variable(0.0)
          >>> slot.strategy is strategy
          True
        """
        return self.extended.colocate_vars_with(colocate_with_variable)

    def experimental_distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
    ) -> Any:
        """Returns `distribute_datasets_from_function(...)`, under its first name.

        Args:
          dataset_fn: Returns a dataset of per-replica batches from an `InputContext`.
          options: Options for reading and placing batches.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> dataset = strategy.experimental_distribute_datasets_from_function(
          ...     lambda context: dl.data.Dataset.range(8).batch(2)
          ... )
          >>> [part.tolist() for part in next(iter(dataset)).values]
          [[0, 1], [2, 3]]
        """
        return self.distribute_datasets_from_function(dataset_fn, options)

    def _repr_html_(self) -> str:
        """Shows the device of each replica in notebooks."""
        from distlab.values.reprs import strategy_html

        return strategy_html(self)

    def __repr__(self) -> str:
        """Names the devices."""
        return f"{type(self).__name__}({', '.join(self.device_names)})"


def _has_components(value: Any) -> bool:
    if isinstance(value, Variable):
        return not value.storage.layout.one_copy
    return isinstance(value, DistributedValues)


def _announce_values(
    value_fn: Callable[[ValueContext], Any], nests: Sequence[Any], strategy: int, started: int
) -> None:
    """Emits that the replicas' values were put on their devices, where they were on the host."""
    if not sink.recorder().enabled:
        return
    leaves = [leaf for leaf in jax.tree.leaves(nests) if isinstance(leaf, np.ndarray)]
    if leaves:
        copy_events.announce(
            strategy,
            f"values of {function_name(value_fn)}",
            "to_devices",
            size=sum(leaf.nbytes for leaf in leaves),
            copies=len(nests),
            started=started,
        )
