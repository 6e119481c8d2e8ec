"""What libraries and ported code use of a strategy beyond its verbs."""

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
from distlab.step.regroup import regroup, select
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
    """The methods of `tf.distribute.StrategyExtended`. Get it as `strategy.extended`."""

    def __init__(self, strategy: ExtendedHost) -> None:
        self._strategy = strategy

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The devices that run replicas, in replica order.

        Raises:
          ContextError: for the default strategy, which has no list of devices.
        """
        return self._named("worker_devices", self._strategy.device_names)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """The devices that hold variables.

        Raises:
          ContextError: for the default strategy, which has no list of devices.
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
        """True: this process has all of the state, and should save it."""
        return True

    @property
    def should_save_summary(self) -> bool:
        """True: this process should write summaries."""
        return True

    def experimental_make_numpy_dataset(self, numpy_input: Any, session: Any = None) -> Any:
        """Is `Strategy.experimental_make_numpy_dataset`."""
        del session
        return Dataset.from_tensor_slices(numpy_input)

    def call_for_each_replica(
        self, fn: Callable[..., Any], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Is `Strategy.run` without options."""
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
          var: the variable.
          fn: is given one copy, which it can read and assign; what it is given
            of distributed values is that copy's component.
          args: more arguments.
          kwargs: named arguments.
          group: whether to merge the results into distributed values.

        Returns:
          The merged results; with `group=False` their structure with a tuple of
          one result for each copy at each leaf.

        Raises:
          ContextError: called in a replica function.
          ValueShapeError: `var` is no variable.
        """
        scopes.require_cross_replica("update", self._strategy)
        if not isinstance(var, Variable):
            raise ValueShapeError(f"update needs a distlab.Variable, got {var!r:.80}.")
        args, kwargs = checked_call("update", fn, args, kwargs)
        together = scopes.merging()
        if together is not None:
            own_args, own_kwargs = local_part((args, kwargs))
            merged = together.merged(_values_of_copies(fn(var.values[0], *own_args, **own_kwargs)))
            return merged if group else _in_tuples([merged])
        before = var.storage.array
        results = []
        try:
            for copy in var.values:
                own_args, own_kwargs = _beside(copy, *select((args, kwargs), copy.number))
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
        """Calls `fn(*args, **kwargs)` once for each device that `colocate_with` names."""
        scopes.require_cross_replica("update_non_slot", self._strategy)
        args, kwargs = checked_call("update_non_slot", fn, args, kwargs)
        devices = selection.find(colocate_with)
        results = []
        for number in range(len(devices)):
            own_args, own_kwargs = select((args, kwargs), number)
            results.append(fn(*own_args, **own_kwargs))
        return regroup(results, self._strategy.mesh) if group else _in_tuples(results)

    def non_slot_devices(self, var_list: Sequence[Any]) -> tuple[str, ...]:
        """Returns the devices for values that belong to no single variable."""
        del var_list
        return self.parameter_devices

    def reduce_to(
        self, reduce_op: ReduceOp | str, value: Any, destinations: Any, options: Any = None
    ) -> Any:
        """Combines the replicas' values and places the result.

        Args:
          reduce_op: `ReduceOp.SUM`, `ReduceOp.MEAN`, or their name.
          value: a per-replica value.
          destinations: a device, for the result there; a variable or a
            distributed value, for a copy of the result on each of its devices.
          options: `CommunicationOptions`, hints that change no value.

        Returns:
          An array on the device, or a `Mirrored`.

        Raises:
          ReduceOpError: there is no such reduction.
          ValueShapeError: a plain value is to be summed, or shapes differ.
          InvalidArgumentError: the destination is something else.
          ContextError: called in a replica function.
        """
        del options
        scopes.require_cross_replica("reduce_to", self._strategy)
        op = ReduceOp.of(reduce_op)
        _require_destination(destinations)
        if isinstance(value, PerReplica) and not isinstance(value.stacked, jax.core.Tracer):
            ops = self._strategy.cross_device_ops
            result = reducing.reduce_per_replica(
                self._strategy, op, value, None, ops=ops, call=next(reducing.calls)
            )
        else:
            result = reducing.reduce(self._strategy, op, value, axis=None)
        return self._placed(result, destinations)

    def batch_reduce_to(
        self,
        reduce_op: ReduceOp | str,
        value_destination_pairs: Sequence[tuple[Any, Any]],
        options: Any = None,
    ) -> list[Any]:
        """Is `reduce_to` over pairs of a value and its destinations."""
        return [self.reduce_to(reduce_op, v, to, options) for v, to in value_destination_pairs]

    def broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        """Copies an array to a device, or to each device of a variable or value.

        Raises:
          InvalidArgumentError: the destination is something else.
          ContextError: called in a replica function.
        """
        scopes.require_cross_replica("broadcast_to", self._strategy)
        _require_destination(destinations)
        return self._placed(as_value(tensor, None, "broadcast_to"), destinations)

    def read_var(self, v: Any) -> jax.Array:
        """Returns a variable's value; ON_READ copies are aggregated.

        Raises:
          ValueShapeError: not a variable.
        """
        if not isinstance(v, Variable | VariableCopy):
            raise ValueShapeError(f"read_var needs a distlab.Variable, got {v!r:.80}.")
        value: jax.Array = v.read_value()
        return value

    def value_container(self, value: Any) -> Any:
        """Returns the variable that a copy belongs to; anything else as it is."""
        return value.variable if isinstance(value, VariableCopy) else value

    def variable_created_in_scope(self, v: Any) -> bool:
        """Says whether a variable was made under this strategy."""
        return isinstance(v, Variable) and v.strategy is self._strategy

    @contextlib.contextmanager
    def colocate_vars_with(self, colocate_with_variable: Variable) -> Iterator[None]:
        """Makes variables in its block live where the given one does.

        Under one strategy all variables do, so it checks and changes nothing.

        Raises:
          ContextError: this strategy is not in scope.
          ValueShapeError: not a variable of this strategy.
        """
        if scopes.current_strategy() is not self._strategy:
            raise ContextError(
                f"colocate_vars_with needs {self._strategy!r} to be in scope. Enter "
                "strategy.scope() first."
            )
        if not self.variable_created_in_scope(colocate_with_variable):
            raise ValueShapeError(
                f"colocate_vars_with needs a variable made under {self._strategy!r}, got "
                f"{colocate_with_variable!r:.80}."
            )
        yield

    def _named(self, what: str, names: tuple[str, ...]) -> tuple[str, ...]:
        if not self._strategy.distributed:
            raise ContextError(
                f"The default strategy has no {what}: nothing is distributed outside of a scope. "
                "Enter a strategy's scope, or ask the strategy itself."
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
        f"{destinations!r:.80}. For several devices give a value that lies on them."
    )


def _beside(copy: VariableCopy, args: Any, kwargs: Any) -> Any:
    """Brings plain arrays that are bound to other devices to the copy's device."""
    home = next(iter(copy.value().devices()))
    return jax.tree.map(
        lambda leaf: (
            jax.device_put(leaf, home)
            if isinstance(leaf, jax.Array) and leaf.committed and leaf.devices() != {home}
            else leaf
        ),
        (args, kwargs),
        is_leaf=lambda v: isinstance(v, Variable | VariableCopy),
    )


def _values_of_copies(nest: Any) -> Any:
    """Returns a nest with the traced value in the place of each copy of a variable."""
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
