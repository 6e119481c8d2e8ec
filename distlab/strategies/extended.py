"""The methods of a strategy for libraries and ported code."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, final

import jax
import numpy as np

from distlab.collectives import reducing
from distlab.collectives.host import CollectiveHost
from distlab.collectives.traced import TracedPerReplica, local_part
from distlab.context import scopes
from distlab.context.collectives import MergingCollectives
from distlab.context.communication import require_options
from distlab.context.replica_context import get_replica_context
from distlab.data import Dataset
from distlab.devices import in_flight, selection
from distlab.devices.requirements import require_not_staged
from distlab.errors import (
    ContextError,
    InvalidArgumentError,
    ValueShapeError,
)
from distlab.processes import group
from distlab.processes.boundary import verb
from distlab.step.programs.results import regroup, select, to_device
from distlab.text.shown import shown
from distlab.values.checks import (
    checked_call,
    require_alive,
    require_components,
    require_plain,
)
from distlab.values.distributed import DistributedValues, Mirrored, PerReplica
from distlab.values.reduce_op import ReduceOp
from distlab.variables import frames
from distlab.variables.conversion import as_value
from distlab.variables.sharded_variable import ShardedVariable
from distlab.variables.variable import Variable
from distlab.variables.variable_copy import VariableCopy


class ExtendedHost(CollectiveHost, Protocol):
    """The strategy behind `strategy.extended`."""

    @property
    def parameter_device_names(self) -> tuple[str, ...]:
        """The devices that hold variables."""

    @property
    def local_device_names(self) -> tuple[str, ...]:
        """The devices of the replicas of this process."""

    def run(self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None) -> Any:
        """Runs a function on every replica."""

    def beside(
        self, variable: Variable | ShardedVariable
    ) -> contextlib.AbstractContextManager[None]:
        """Puts the variables that are made in a block where another one is."""


@final
class StrategyExtended:
    """The methods of `tf.distribute.StrategyExtended`, as `strategy.extended`.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> strategy.extended.worker_devices
      ('CPU:0', 'CPU:1')
    """

    def __init__(self, strategy: ExtendedHost) -> None:
        self._strategy = strategy

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The devices that run replicas, in replica order; of several workers, this one's.

        Raises:
          ContextError: The strategy is the default one, which has no list of devices.
        """
        return self._named("worker_devices", self._strategy.local_device_names)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """The devices that hold variables.

        Raises:
          ContextError: The strategy is the default one, which has no list of devices.
        """
        return self._named("parameter_devices", self._strategy.parameter_device_names)

    @property
    def experimental_require_static_shapes(self) -> bool:
        """False: replicas may have different shapes."""
        return False

    @property
    def experimental_between_graph(self) -> bool:
        """False: one program runs all replicas."""
        return False

    @property
    def experimental_should_init(self) -> bool:
        """True: this process makes the variables."""
        return True

    @property
    def should_checkpoint(self) -> bool:
        """True where this process writes checkpoints: in the chief.

        `dl.train.Checkpoint.save` looks at that itself: all workers call it.
        """
        return self._is_chief

    @property
    def should_save_summary(self) -> bool:
        """True where this process writes summaries: in the chief."""
        return self._is_chief

    def experimental_make_numpy_dataset(self, numpy_input: Any, session: Any = None) -> Any:
        """Returns `Strategy.experimental_make_numpy_dataset(numpy_input)`.

        Args:
          numpy_input: A nest of arrays of the shape `[rows, ...]`.
          session: Ignored; accepted for compatibility with TensorFlow 1.

        Example:
          >>> import distlab as dl
          >>> import numpy as np
          >>> extended = dl.MirroredStrategy(["CPU:0", "CPU:1"]).extended
          >>> [int(n) for n in extended.experimental_make_numpy_dataset(np.arange(3))]
          [0, 1, 2]
        """
        del session
        return Dataset.from_tensor_slices(numpy_input)

    def call_for_each_replica(
        self, fn: Callable[..., Any], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Returns `Strategy.run(fn, args, kwargs)`.

        Args:
          fn: The replica function.
          args: Its arguments.
          kwargs: Its named arguments.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> strategy.extended.call_for_each_replica(lambda x: x + 1.0, (2,)).values[1].item()
          3.0
        """
        return self._strategy.run(fn, args=args, kwargs=kwargs)

    @verb
    def update(
        self,
        var: Variable,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        group: bool = True,
    ) -> Any:
        """Calls `fn(copy, *args, **kwargs)` for every copy of a variable.

        The function runs in cross-replica context, as an update of one copy: a variable that it
        reads or assigns, this one or another, is that copy's. In a replica function the call is
        a `merge_call`. A compiled `merge_call` calls the function once for all copies.

        Args:
          var: The variable.
          fn: The function. Its first argument is a copy, which it may read and
            assign; of distributed values it receives that copy's component.
          args: Its other arguments.
          kwargs: Its named arguments.
          group: Whether to merge the results into distributed values.

        Returns:
          The merged results; with `group=False` their structure, with a tuple of
          one result for each copy at each leaf; as in TensorFlow, an object that is the
          result for every copy is there once.

        Raises:
          ContextError: The call is in a replica function of another strategy, or the variable is
            another strategy's.
          ValueShapeError: `var` is not a variable.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> with strategy.scope():
          ...     weight = dl.Variable(1.0)
          ...     _ = strategy.extended.update(weight, lambda copy, x: copy.assign(x), (5.0,))
          >>> float(weight.value())
          5.0
        """
        held = getattr(var, "distlab_variable", None)  # of one of Keras
        var = var if held is None else held
        if not isinstance(var, Variable):
            raise ValueShapeError(
                f"update needs a distlab.Variable, got {shown(var)}. Pass the variable itself; of "
                "a ShardedVariable, each of its variables."
            )
        if var.strategy is not self._strategy and var.strategy.distributed:
            raise ContextError(
                f"{var.name} belongs to {var.strategy!r}, and update is of {self._strategy!r}. "
                "Use the update of the strategy that made the variable."
            )
        args, kwargs = checked_call("update", fn, args, kwargs)
        require_plain(fn, "update")
        in_flight.require_not_forked()
        replica = scopes.current_replica()
        if self._strategy.distributed and replica and replica.strategy is self._strategy:
            return get_replica_context().merge_call(
                lambda _, *merged, **named: self.update(var, fn, merged, named, group), args, kwargs
            )
        scopes.require_cross_replica("update", self._strategy)
        merging = scopes.merging()
        if merging is not None:
            return self._update_traced(merging, var.values, fn, args, kwargs, group=group)
        places = {n: next(iter(copy.devices())) for n, copy in var.storage.copies().items()}
        return self._update_each(places, var.values, fn, args, kwargs, group=group)

    def update_non_slot(
        self,
        colocate_with: Any,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        group: bool = True,
    ) -> Any:
        """Calls `fn(*args, **kwargs)` once for each device.

        Args:
          colocate_with: The devices, such as `non_slot_devices` returns.
          fn: The function.
          args: Its arguments; of distributed values it receives a device's component.
          kwargs: Its named arguments.
          group: Whether to merge the results into distributed values.

        Returns:
          The merged results; with `group=False` their structure, with a tuple of
          one result for each device at each leaf; as in TensorFlow, an object that is the
          result for every device is there once.

        Raises:
          ContextError: The call is in a replica function.
          DeviceError: A device does not exist.

        Example:
          >>> import distlab as dl
          >>> extended = dl.MirroredStrategy(["CPU:0", "CPU:1"]).extended
          >>> extended.update_non_slot(
          ...     extended.non_slot_devices([]), lambda x: x + 1, (1,), group=False
          ... )
          (2,)
        """
        scopes.require_cross_replica("update_non_slot", self._strategy)
        args, kwargs = checked_call("update_non_slot", fn, args, kwargs)
        require_plain(fn, "update_non_slot")
        devices = selection.find(colocate_with)
        copies = (None,) * len(devices)
        merging = scopes.merging()
        if merging is not None:
            return self._update_traced(merging, copies, fn, args, kwargs, group=group)
        return self._update_each(self._replicas_on(devices), copies, fn, args, kwargs, group=group)

    def _replicas_on(self, devices: Sequence[jax.Device]) -> dict[int, jax.Device]:
        """Returns devices by the replica whose component of distributed values they receive."""
        first = self._strategy.mesh.local_replicas[0]
        return dict(enumerate(devices, first))

    def _update_each(
        self,
        devices: dict[int, jax.Device],
        copies: Sequence[VariableCopy | None],
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        group: bool,
    ) -> Any:
        """Calls a function for each copy, or each device; restores variables if it raises."""
        require_not_staged("update or update_non_slot")
        undo = frames.Undo()
        results = []
        try:
            for (number, device), copy in zip(devices.items(), copies, strict=True):
                own_args, own_kwargs = _beside(device, select((args, kwargs), number))
                own_args = own_args if copy is None else (copy, *own_args)
                with (
                    jax.default_device(device),
                    frames.use(frames.EagerFrame(number, device, undo)),
                    scopes.cross_replica(self._strategy, updating=True),
                ):
                    results.append(fn(*own_args, **own_kwargs))
            undo.store()
        except BaseException:
            undo.restore()
            raise
        return regroup(results, self._strategy.mesh) if group else _in_tuples(results)

    def _update_traced(
        self,
        merging: MergingCollectives,
        copies: Sequence[VariableCopy | None],
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        group: bool,
    ) -> Any:
        """Calls a function once in a `merge_call` that is being traced, for all copies."""
        own_args, own_kwargs = local_part((args, kwargs))
        for_all = len(copies) == len(self._strategy.mesh.local_replicas)
        if not for_all:
            own_args, own_kwargs = jax.tree.map(
                lambda whole, own: merging.first(own) if whole is not own else own,
                (args, kwargs),
                (own_args, own_kwargs),
                is_leaf=lambda v: isinstance(v, DistributedValues),
            )
        own_args, own_kwargs = _with_own_arrays((own_args, own_kwargs))
        if copies[0] is not None:
            own_args = (VariableCopy(copies[0].variable, None), *own_args)
        with scopes.cross_replica(self._strategy, merging, updating=True):
            result = fn(*own_args, **own_kwargs)
        if for_all and self._strategy.num_replicas_in_sync > 1:
            result = merging.merged(_without_copies(result, group=group))
        return result if group else jax.tree.map(_components, result, is_leaf=_is_leaf)

    def non_slot_devices(self, var_list: Sequence[Any]) -> tuple[str, ...]:
        """Returns the devices of values that belong to no single variable.

        Args:
          var_list: Ignored; the devices are those of all variables.

        Example:
          >>> import distlab as dl
          >>> dl.MirroredStrategy(["CPU:0", "CPU:1"]).extended.non_slot_devices([])
          ('CPU:0', 'CPU:1')
        """
        del var_list
        return self.parameter_devices

    @verb
    def reduce_to(
        self, reduce_op: ReduceOp | str, value: Any, destinations: Any, options: Any = None
    ) -> Any:
        """Combines the replicas' values and places the result.

        Args:
          reduce_op: `ReduceOp.SUM`, `ReduceOp.MEAN`, or the name of one.
          value: A per-replica value.
          destinations: A device, an array or variable of one device, for the result
            there; a variable or distributed value on several devices, for a copy of the
            result on each of them.
          options: `CommunicationOptions`, hints that change no value.

        Returns:
          An array on the device, or a `Mirrored`.

        Raises:
          ReduceOpError: `reduce_op` is not a reduction.
          OptionError: `options` are no `CommunicationOptions`.
          ValueShapeError: A plain value would be summed, or the shapes differ.
          InvalidArgumentError: `destinations` is none of these, or of another strategy.
          ContextError: The call is in a replica function.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> x = strategy.run(lambda: dl.get_replica_context().replica_id_in_sync_group + 1)
          >>> total = strategy.extended.reduce_to("SUM", x, "CPU:1")
          >>> total, total.devices()
          (Array(3, dtype=int32), {CpuDevice(id=1)})
        """
        started = time.monotonic_ns()
        scopes.require_cross_replica("reduce_to", self._strategy)
        in_flight.require_not_forked()
        op = ReduceOp.of(reduce_op)
        require_options(options, "reduce_to")
        self._require_destination(destinations)
        if isinstance(value, PerReplica) and not isinstance(value.stacked, jax.core.Tracer):
            replicas = self._strategy.num_replicas_in_sync
            require_alive(value.stacked, "The value to reduce")
            require_components(value, "The value to reduce", replicas)
            value = reducing.summable_components(value, op)
            (result,) = reducing.reduce_per_replica(self._strategy, op, [value], None, started)
        else:
            result = reducing.reduce(self._strategy, op, value, axis=None)
        return jax.tree.map(lambda leaf: self._placed(leaf, destinations), result)

    def batch_reduce_to(
        self,
        reduce_op: ReduceOp | str,
        value_destination_pairs: Sequence[tuple[Any, Any]],
        options: Any = None,
    ) -> list[Any]:
        """Returns `reduce_to` of each pair of a value and its destinations.

        Args:
          reduce_op: `ReduceOp.SUM`, `ReduceOp.MEAN`, or the name of one.
          value_destination_pairs: The pairs.
          options: `CommunicationOptions`, hints that change no value.

        Raises:
          OptionError: `options` are no `CommunicationOptions`.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> x = strategy.run(lambda: dl.get_replica_context().replica_id_in_sync_group + 1)
          >>> strategy.extended.batch_reduce_to("SUM", [(x, "CPU:0"), (x, "CPU:1")])
          [Array(3, dtype=int32), Array(3, dtype=int32)]
        """
        require_options(options, "batch_reduce_to")
        return [self.reduce_to(reduce_op, v, to, options) for v, to in value_destination_pairs]

    def broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        """Copies an array to a device, or to each device of a variable or distributed value.

        Args:
          tensor: The array.
          destinations: The device, variable or distributed value.

        Raises:
          InvalidArgumentError: `destinations` is none of these, or of another strategy.
          ContextError: The call is in a replica function.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> strategy.extended.broadcast_to(7.0, "CPU:1").devices()
          {CpuDevice(id=1)}
        """
        scopes.require_cross_replica("broadcast_to", self._strategy)
        self._require_destination(destinations)
        return self._placed(as_value(tensor, None, "broadcast_to"), destinations)

    def read_var(self, v: Any) -> jax.Array:
        """Returns a variable's value, in which ON_READ copies are aggregated.

        Args:
          v: The variable, or a copy of it.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> with strategy.scope():
          ...     weight = dl.Variable(2.0)
          >>> float(strategy.extended.read_var(weight))
          2.0
        """
        value: jax.Array = v.read_value()
        return value

    def value_container(self, value: Any) -> Any:
        """Returns the variable that a copy belongs to, and any other value unchanged.

        Args:
          value: A copy of a variable, or any other value.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> with strategy.scope():
          ...     weight = dl.Variable(2.0)
          >>> strategy.extended.value_container(weight.values[0]) is weight
          True
        """
        return value.variable if isinstance(value, VariableCopy) else value

    def variable_created_in_scope(self, v: Any) -> bool:
        """Returns whether a variable was made under this strategy.

        Args:
          v: The variable.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> strategy.extended.variable_created_in_scope(dl.Variable(1.0))
          False
        """
        return isinstance(v, Variable | ShardedVariable) and v.strategy is self._strategy

    @contextlib.contextmanager
    def colocate_vars_with(
        self, colocate_with_variable: Variable | ShardedVariable
    ) -> Iterator[None]:
        """Places the variables made in its block on the devices of another variable.

        Those of a `ParameterServerStrategy` go to the parameter server of the other one. Beside a
        variable in parts, one with as many rows is made in the same parts, each with its
        counterpart, and any other is whole. Under other strategies all variables have the same
        devices, so this only checks.

        Args:
          colocate_with_variable: A variable of this strategy.

        Raises:
          ContextError: This strategy is not in scope.
          ValueShapeError: The argument is not a variable of this strategy.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> with strategy.scope():
          ...     weight = dl.Variable(1.0)
          ...     with strategy.extended.colocate_vars_with(weight):
          ...         slot = dl.Variable(0.0)
          >>> len(slot.values)
          2
        """
        if scopes.current_strategy() is not self._strategy:
            raise ContextError(
                f"colocate_vars_with needs {self._strategy!r} to be in scope. Enter "
                "strategy.scope() first."
            )
        if not self.variable_created_in_scope(colocate_with_variable):
            raise ValueShapeError(
                f"colocate_vars_with needs a variable made under {self._strategy!r}, got "
                f"{shown(colocate_with_variable)}. Make it in strategy.scope()."
            )
        with self._strategy.beside(colocate_with_variable):
            yield

    @property
    def _is_chief(self) -> bool:
        processes = group.across(self._strategy.mesh)
        return processes is None or processes.is_chief

    def _named(self, what: str, names: tuple[str, ...]) -> tuple[str, ...]:
        if not self._strategy.distributed:
            raise ContextError(
                f"The default strategy has no {what}: nothing is distributed outside of a scope. "
                f"Enter a strategy's scope, or use its own extended.{what}."
            )
        return names

    def _require_destination(self, destinations: Any) -> None:
        known = (
            str | jax.Device | Variable | VariableCopy | PerReplica | Mirrored | TracedPerReplica
        )
        if not isinstance(destinations, known | jax.Array | np.ndarray):
            raise InvalidArgumentError(
                "destinations must be a device such as 'CPU:0', a variable, or a distributed "
                f"value, got {shown(destinations)}. For several devices pass a value that lies on "
                "them."
            )
        owner = getattr(getattr(destinations, "variable", destinations), "strategy", None)
        if owner in {None, self._strategy} or not owner.distributed:
            return
        if _only_device(destinations) is None:
            raise InvalidArgumentError(
                f"destinations must belong to {self._strategy!r}, got {shown(destinations)} of "
                f"{owner!r}. Pass a variable that was made in this strategy's scope."
            )

    def _placed(self, value: jax.Array, destinations: Any) -> Any:
        if isinstance(value, jax.core.Tracer):
            return value
        device = _only_device(destinations)
        if device is not None:
            return jax.device_put(value, device)
        if self._strategy.num_replicas_in_sync == 1 or isinstance(destinations, np.ndarray):
            return value
        return Mirrored(self._strategy.mesh.put_whole(value))


def _only_device(destinations: Any) -> jax.Device | None:
    """Returns the device of a destination that has one; None for several, or none."""
    if isinstance(destinations, str | jax.Device):
        return selection.find([destinations])[0]
    if isinstance(destinations, Variable):
        destinations = destinations.storage.array
    elif isinstance(destinations, VariableCopy):
        destinations = destinations.value()
    if not isinstance(destinations, jax.Array) or isinstance(destinations, jax.core.Tracer):
        return None
    devices = destinations.devices()
    return next(iter(devices)) if len(devices) == 1 else None


def _beside(device: jax.Device, nest: Any) -> Any:
    """Moves arrays that are committed to other devices to a device."""
    return to_device(_with_own_arrays(nest), device, is_leaf=_is_leaf)


def _with_own_arrays(nest: Any) -> Any:
    """Copies arrays of NumPy: a function may write to its own, but not to those of other calls."""
    return jax.tree.map(
        lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, nest, is_leaf=_is_leaf
    )


def _is_leaf(value: Any) -> bool:
    return isinstance(value, DistributedValues)


def _without_copies(nest: Any, *, group: bool) -> Any:
    """Returns a nest with the traced value, or the variable, instead of each copy of one."""

    def replaced(leaf: Any) -> Any:
        if not isinstance(leaf, VariableCopy):
            return leaf
        return leaf.value() if group else leaf.variable

    return jax.tree.map(replaced, nest)


def _components(leaf: Any) -> tuple[Any, ...]:
    """Returns the components of a distributed value, and any other value in a tuple of one."""
    if isinstance(leaf, DistributedValues):
        return leaf.values
    shared = not isinstance(leaf, Variable) or leaf.storage.layout.one_copy
    return (leaf,) if shared else leaf.values


def _in_tuples(results: list[Any]) -> Any:
    """Returns results with a tuple of each copy's at each leaf; once what is one object for all."""
    return jax.tree.map(
        lambda *leaves: _components(leaves[0]) if len(set(map(id, leaves))) == 1 else leaves,
        *results,
        is_leaf=_is_leaf,
    )
