"""The methods of a strategy for libraries and ported code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, final

import jax

from distlab.collectives import reducing
from distlab.collectives.host import CollectiveHost
from distlab.collectives.traced import TracedPerReplica, local_part
from distlab.context import scopes
from distlab.data import Dataset
from distlab.devices import selection
from distlab.errors import ContextError, InvalidArgumentError, ValueShapeError
from distlab.step.regroup import regroup, select, to_device
from distlab.values.checks import checked_call
from distlab.values.distributed import Mirrored, PerReplica
from distlab.values.reduce_op import ReduceOp
from distlab.variables.variable import Variable, as_value
from distlab.variables.variable_copy import VariableCopy


class ExtendedHost(CollectiveHost, Protocol):
    """The strategy behind `strategy.extended`."""

    @property
    def parameter_device_names(self) -> tuple[str, ...]:
        """The devices that hold variables."""

    def run(self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None) -> Any:
        """Runs a function on every replica."""


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
        """The devices that run replicas, in replica order.

        Raises:
          ContextError: The strategy is the default one, which has no list of devices.
        """
        return self._named("worker_devices", self._strategy.device_names)

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
        """True: this process holds the whole state, and should save it."""
        return True

    @property
    def should_save_summary(self) -> bool:
        """True: this process should write summaries."""
        return True

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

    def update(
        self,
        var: Variable,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        group: bool = True,
    ) -> Any:
        """Calls `fn(copy, *args, **kwargs)` for every copy of a variable.

        Args:
          var: The variable.
          fn: The function. Its first argument is a copy, which it may read and
            assign; of distributed values it receives that copy's component.
          args: Its other arguments.
          kwargs: Its named arguments.
          group: Whether to merge the results into distributed values.

        Returns:
          The merged results; with `group=False` their structure, with a tuple of
          one result for each copy at each leaf.

        Raises:
          ContextError: The call is in a replica function.
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
        scopes.require_cross_replica("update", self._strategy)
        if not isinstance(var, Variable):
            raise ValueShapeError(
                f"update needs a distlab.Variable, got {var!r:.80}. Pass the variable itself."
            )
        args, kwargs = checked_call("update", fn, args, kwargs)
        merging = scopes.merging()
        if merging is not None:
            own_args, own_kwargs = local_part((args, kwargs))
            merged = merging.merged(_values_of_copies(fn(var.values[0], *own_args, **own_kwargs)))
            return merged if group else _in_tuples([merged])
        before = var.storage.array
        results = []
        try:
            for copy in var.values:
                own_args, own_kwargs = _beside(copy, select((args, kwargs), copy.number))
                results.append(fn(copy, *own_args, **own_kwargs))
        except BaseException:
            var.storage.array = before
            raise
        return regroup(results, self._strategy.mesh) if group else _in_tuples(results)

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
          one result for each device at each leaf.

        Raises:
          ContextError: The call is in a replica function.
          DeviceError: A device does not exist.

        Example:
          >>> import distlab as dl
          >>> extended = dl.MirroredStrategy(["CPU:0", "CPU:1"]).extended
          >>> extended.update_non_slot(
          ...     extended.non_slot_devices([]), lambda x: x + 1, (1,), group=False
          ... )
          (2, 2)
        """
        scopes.require_cross_replica("update_non_slot", self._strategy)
        args, kwargs = checked_call("update_non_slot", fn, args, kwargs)
        devices = selection.find(colocate_with)
        results = []
        for number in range(len(devices)):
            own_args, own_kwargs = select((args, kwargs), number)
            results.append(fn(*own_args, **own_kwargs))
        return regroup(results, self._strategy.mesh) if group else _in_tuples(results)

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

    def reduce_to(
        self, reduce_op: ReduceOp | str, value: Any, destinations: Any, options: Any = None
    ) -> Any:
        """Combines the replicas' values and places the result.

        Args:
          reduce_op: `ReduceOp.SUM`, `ReduceOp.MEAN`, or the name of one.
          value: A per-replica value.
          destinations: A device, for the result there; a variable or a
            distributed value, for a copy of the result on each of its devices.
          options: `CommunicationOptions`, hints that change no value.

        Returns:
          An array on the device, or a `Mirrored`.

        Raises:
          ReduceOpError: `reduce_op` is not a reduction.
          ValueShapeError: A plain value would be summed, or the shapes differ.
          InvalidArgumentError: `destinations` is none of these.
          ContextError: The call is in a replica function.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> x = strategy.run(lambda: dl.get_replica_context().replica_id_in_sync_group + 1)
          >>> total = strategy.extended.reduce_to("SUM", x, "CPU:1")
          >>> total, total.devices()
          (Array(3, dtype=int32), {CpuDevice(id=1)})
        """
        del options
        scopes.require_cross_replica("reduce_to", self._strategy)
        op = ReduceOp.of(reduce_op)
        _require_destination(destinations)
        if isinstance(value, PerReplica) and not isinstance(value.stacked, jax.core.Tracer):
            (result,) = reducing.reduce_per_replica(self._strategy, op, [value], None)
        else:
            result = reducing.reduce(self._strategy, op, value, axis=None)
        return self._placed(result, destinations)

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

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> x = strategy.run(lambda: dl.get_replica_context().replica_id_in_sync_group + 1)
          >>> strategy.extended.batch_reduce_to("SUM", [(x, "CPU:0"), (x, "CPU:1")])
          [Array(3, dtype=int32), Array(3, dtype=int32)]
        """
        return [self.reduce_to(reduce_op, v, to, options) for v, to in value_destination_pairs]

    def broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        """Copies an array to a device, or to each device of a variable or distributed value.

        Args:
          tensor: The array.
          destinations: The device, variable or distributed value.

        Raises:
          InvalidArgumentError: `destinations` is none of these.
          ContextError: The call is in a replica function.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> strategy.extended.broadcast_to(7.0, "CPU:1").devices()
          {CpuDevice(id=1)}
        """
        scopes.require_cross_replica("broadcast_to", self._strategy)
        _require_destination(destinations)
        return self._placed(as_value(tensor, None, "broadcast_to"), destinations)

    def read_var(self, v: Any) -> jax.Array:
        """Returns a variable's value, in which ON_READ copies are aggregated.

        Args:
          v: The variable, or a copy of it.

        Raises:
          ValueShapeError: `v` is not a variable.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> with strategy.scope():
          ...     weight = dl.Variable(2.0)
          >>> float(strategy.extended.read_var(weight))
          2.0
        """
        if not isinstance(v, Variable | VariableCopy):
            raise ValueShapeError(
                f"read_var needs a distlab.Variable, got {v!r:.80}. Pass the variable itself."
            )
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
        return isinstance(v, Variable) and v.strategy is self._strategy

    @contextlib.contextmanager
    def colocate_vars_with(self, colocate_with_variable: Variable) -> Iterator[None]:
        """Places the variables made in its block on the devices of another variable.

        All variables of a strategy have the same devices, so this only checks.

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
                f"{colocate_with_variable!r:.80}. Make it in strategy.scope()."
            )
        yield

    def _named(self, what: str, names: tuple[str, ...]) -> tuple[str, ...]:
        if not self._strategy.distributed:
            raise ContextError(
                f"The default strategy has no {what}: nothing is distributed outside of a scope. "
                f"Enter a strategy's scope, or use its own extended.{what}."
            )
        return names

    def _placed(self, value: jax.Array, destinations: Any) -> Any:
        if isinstance(value, jax.core.Tracer):
            return value
        if isinstance(destinations, str | jax.Device):
            return jax.device_put(value, selection.find([destinations])[0])
        single = isinstance(destinations, Variable) and destinations.storage.layout.one_copy
        if self._strategy.num_replicas_in_sync == 1 or single:
            return value
        return Mirrored(jax.device_put(value, self._strategy.mesh.whole))


def _require_destination(destinations: Any) -> None:
    known = str | jax.Device | Variable | VariableCopy | PerReplica | Mirrored | TracedPerReplica
    if isinstance(destinations, known | jax.Array):
        return
    raise InvalidArgumentError(
        "destinations must be a device such as 'CPU:0', a variable, or a distributed value, got "
        f"{destinations!r:.80}. For several devices pass a value that lies on them."
    )


def _beside(copy: VariableCopy, nest: Any) -> Any:
    """Moves arrays that are committed to other devices to the copy's device."""
    home = next(iter(copy.value().devices()))
    return to_device(nest, home, is_leaf=lambda v: isinstance(v, Variable | VariableCopy))


def _values_of_copies(nest: Any) -> Any:
    """Returns a nest with the traced value of each copy of a variable."""
    return jax.tree.map(
        lambda leaf: leaf.value() if isinstance(leaf, VariableCopy) else leaf,
        nest,
        is_leaf=lambda v: isinstance(v, VariableCopy),
    )


def _in_tuples(results: list[Any]) -> Any:
    """Returns the structure of the results with a tuple of them at each leaf."""
    return jax.tree.map(
        lambda *leaves: tuple(leaves), *results, is_leaf=lambda v: isinstance(v, VariableCopy)
    )
