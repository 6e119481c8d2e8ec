"""Variables: named arrays on the replicas' devices that can be assigned.

A variable made in a strategy's scope is one global array. A replica function reads
and assigns it as if it were local: `run` passes its value to the program, and
stores the new one afterwards. Programs that keep their state in pytrees need no
variables.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import time
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab import events
from distlab.context import scopes
from distlab.context.host import Host
from distlab.context.replica_context import get_replica_context
from distlab.devices import in_flight, jax_internals
from distlab.devices.layouts import NewVariable
from distlab.devices.requirements import require_no_callback, require_not_staged
from distlab.errors import (
    ArgumentTypeError,
    ContextError,
    UnsupportedError,
    ValueShapeError,
)
from distlab.events import sink
from distlab.processes.boundary import verb
from distlab.text.shown import shown
from distlab.uncopied import Uncopied
from distlab.user_code import calling_line
from distlab.values import copy_events
from distlab.values.distributed import DistributedValues, Mirrored, PerReplica
from distlab.values.indexed_slices import IndexedSlices
from distlab.variables import frames, replicas, scattering, server_traffic
from distlab.variables.chiefs_value import chiefs_value
from distlab.variables.conversion import as_value, checked_value
from distlab.variables.creators import chained
from distlab.variables.kinds import (
    VariableAggregation,
    VariableSynchronization,
    check_kinds,
)
from distlab.variables.operations import COMBINE, Operation
from distlab.variables.remote_storage import RemoteStorage
from distlab.variables.storage import Storage
from distlab.variables.variable_copy import VariableCopy
from distlab.variables.verbs import VariableVerbs

_live: weakref.WeakValueDictionary[int, Variable] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_DESCRIBED: Final = ("name", "shape", "dtype", "trainable", "aggregation", "synchronization")


@final
class Variable(VariableVerbs, Uncopied):
    """An array that can be assigned (`tf.Variable` under a strategy).

    In a strategy's scope every replica has a copy. In a replica function,
    `aggregation` reduces the values that the replicas assign: by SUM, MEAN or
    ONLY_FIRST_REPLICA. With NONE each replica writes its own copy, which suits
    equal values, such as all-reduced gradients. With `synchronization=ON_READ` each
    replica always writes its own copy, and a read in cross-replica context
    aggregates the copies.

    Args:
      initial_value: An array-like, or a function without arguments that returns one.
      trainable: Whether an optimizer should update the variable, for your own code;
        true by default, and false when ON_READ.
      name: The name that pages and messages show; `variable_N` by default.
      dtype: The dtype; by default that of `initial_value`.
      synchronization: AUTO (the same as ON_WRITE), ON_WRITE or ON_READ. Where all replicas
        share one copy it has no effect, and NONE is allowed, too.
      aggregation: How replicas' assignments, or ON_READ copies, are aggregated.
      layout: For each dimension `"model"`, to divide it over the devices of a replica, or None:
        `(None, "model")`. By default what the strategy's `layouts` have for the name; `()` for a
        whole copy on each device, also with `shard_variables`.

    Attributes:
      name: The name that pages and messages show.
      strategy: The strategy in whose scope the variable was made.
      shape: The shape of one copy.
      dtype: The dtype.
      trainable: Whether an optimizer should update the variable.
      synchronization: ON_WRITE or ON_READ; what was given where all replicas share one copy.
      aggregation: How replicas' assignments, or ON_READ copies, are aggregated.
      on_read: Whether each replica always writes its own copy.
      storage: The storage of the copies.

    Raises:
      ValueShapeError: The initial value is neither an array nor numbers, or an integer
        variable has the aggregation MEAN.
      ShardingError: The layout can't divide the value.
      ArgumentTypeError: The name or another argument has a wrong type.
      ContextError: The variable is made inside a function that is being traced.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     total = dl.Variable(10.0, name="total", aggregation=dl.VariableAggregation.SUM)
      >>> def step():
      ...     total.assign_add(dl.get_replica_context().replica_id_in_sync_group + 1.0)
      >>> strategy.run(step)
      >>> total, float(total)
      (<Variable total: float32[], replicated>, 13.0)
    """

    _number: int
    _dependents: dict[int, object]
    _uncopied = (
        "{0!r} can't be copied or pickled: its copies lie on devices of this process. Use "
        "copy.deepcopy for a new variable, numpy.asarray(variable) for its value, or save it "
        "with dl.train.Checkpoint."
    )

    def __new__(cls, *args: Any, **kwargs: Any) -> Variable:
        """Makes one variable for all replicas, through the creators that are in scope."""
        try:
            given = inspect.signature(cls.__init__).bind(None, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"Variable() {error}") from None
        given.apply_defaults()
        arguments = {name: value for name, value in given.arguments.items() if name != "self"}
        make = chained(functools.partial(_made, cls))
        _require_name(arguments["name"])
        label = arguments["name"] or "A variable"
        made: Variable = replicas.made_once(lambda: make(**arguments), label)
        return made

    def __init__(
        self,
        initial_value: Any,
        trainable: bool | None = None,
        *,
        name: str | None = None,
        dtype: Any = None,
        synchronization: VariableSynchronization = VariableSynchronization.AUTO,
        aggregation: VariableAggregation = VariableAggregation.NONE,
        layout: Sequence[Any] | None = None,
    ) -> None:
        if hasattr(self, "storage"):
            return  # initialized in `__new__`
        _require_name(name)  # a creator may have chosen another one
        if trainable is not None and not isinstance(trainable, bool):
            raise ArgumentTypeError(
                f"trainable must be True, False or None, got {shown(trainable)}. Pass a name as "
                "name=..."
            )
        number = next(_numbers)
        self.name = name or f"variable_{number}"
        if jax_internals.being_staged():
            raise ContextError(
                f"{self.name} would be made inside jax.jit, once for each compilation. Make "
                "variables outside of it, in strategy.scope()."
            )
        check_kinds(self.name, synchronization, aggregation)
        strategy = scopes.current_strategy()
        if synchronization is VariableSynchronization.NONE and not strategy.keeps_one_copy:
            raise ValueShapeError(
                f"{self.name}: synchronization NONE has no meaning for a distributed variable. "
                "Use ON_WRITE (copies stay equal) or ON_READ (each replica writes its own copy)."
            )
        in_flight.require_open()
        value = initial_value() if callable(initial_value) else initial_value
        if isinstance(value, jax.core.Tracer):
            raise ContextError(
                f"{self.name} would be made from a value that is being traced, which has no "
                "numbers. Pass a function that makes the initial value: "
                "distlab.Variable(lambda: jnp.zeros(3))."
            )
        array = as_value(value, dtype, self.name)
        if array.aval.weak_type:  # what steps and assignments store is not
            array = array.astype(array.dtype)
        plain = strategy.keeps_one_copy and strategy.num_replicas_in_sync == 1
        on_read = synchronization is VariableSynchronization.ON_READ
        mean = aggregation is VariableAggregation.MEAN
        if mean and not plain and not jnp.issubdtype(array.dtype, jnp.inexact):
            raise ValueShapeError(
                f"{self.name} is {array.dtype}: a MEAN of integers is not an integer. Use SUM or "
                "ONLY_FIRST_REPLICA, or a float variable."
            )
        self.strategy = strategy
        self.trainable = not on_read if trainable is None else bool(trainable)
        self.aggregation = aggregation
        as_given = on_read or strategy.keeps_one_copy
        self.synchronization = synchronization if as_given else VariableSynchronization.ON_WRITE
        several = strategy.num_replicas_in_sync > 1 and not strategy.keeps_one_copy
        self.on_read = on_read and several
        self.shape: tuple[int, ...] = array.shape
        self.dtype = array.dtype
        if self.strategy.mesh.shared:
            array = chiefs_value(array, self.name, self.strategy.mesh)
        self.storage: Storage | RemoteStorage
        described = NewVariable(self.name, self.shape, self.dtype, layout)
        placed = strategy.variable_layout(per_replica=self.on_read, of=described)
        servers = self.strategy.value_servers
        if servers is not None and placed.server is not None:
            self.storage = RemoteStorage.made(servers, array, self.name, placed.server)
        else:
            self.storage = Storage(array, placed, self.name)
        _keep(self, number)

    # ---- reading

    def value(self) -> jax.Array:
        """Returns the value of this replica; outside of a replica function, the common value.

        The common value is on the first copy's device. For an ON_READ variable it
        aggregates the copies. That of a divided variable is an array in its parts; where other
        processes have some of them, all read together, and each receives it whole.

        Raises:
          ContextError: The read is inside a user's own `jax.jit`, which would compile the
            present value in; or the copies are ON_READ and another strategy's replicas read.
          ValueShapeError: The copies are ON_READ and their aggregation is NONE.

        Example:
          >>> import distlab as dl
          >>> v = dl.Variable([1.0, 2.0])
          >>> v.value().tolist()
          [1.0, 2.0]
        """
        frame = frames.current()
        if frame is not None:
            if self.on_read:
                self.require_own_strategy("its value")
            merging = scopes.merging()
            if merging is None or not self.on_read or scopes.updating():
                return frame.get(self)
            return replicas.aggregate(self, frame.get(self), merging, "read_value")
        in_flight.require_not_ending()
        require_no_callback(f"{self.name} was read")
        if jax_internals.being_staged():
            raise ContextError(
                f"{self.name} was read inside jax.jit, which would compile its present value in. "
                "Pass variable.value() to the function as an argument, or use strategy.run."
            )
        if self.storage.layout.copies_differ:
            return replicas.aggregated_copies(self)
        server_traffic.note_read(self.storage)
        return self.storage.first()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Converts this variable for NumPy functions; waits for its value."""
        return copy_events.to_host(
            self.value(), dtype, copy, strategy=self.strategy.number, what=self.name
        )

    @functools.cached_property
    def values(self) -> tuple[VariableCopy, ...]:
        """The copies in replica order, each of which can be read and assigned.

        Of a divided variable each is the whole value, which can only be read.
        """
        return tuple(VariableCopy(self, replica) for replica in self.storage.layout.replicas)

    # ---- assigning

    @verb
    def _update(self, operand: Any, verb: str) -> Variable:
        in_flight.require_not_forked()
        self.require_own_strategy(verb)
        frame = frames.current()
        if frame is None:
            in_flight.require_open()
            require_no_callback(f"{self.name} was assigned")
        if isinstance(operand, DistributedValues):
            if frame is None or (scopes.in_cross_replica_context() and not scopes.updating()):
                replicas.require_own_copies(self, operand, verb)
            if frame is None and not isinstance(operand, Mirrored):
                return self._update_copies(operand, verb)
            operand = operand.component(0) if frame is None else frame.own(operand)
        array = self.checked(operand, verb)
        if isinstance(frame, frames.GradientFrame):
            array = jax.lax.stop_gradient(array)  # then it has numbers where functions run eagerly
        if frame is None:
            self._require_no_trace(array, verb)
            if isinstance(operand, Variable) and operand.storage.same_layout(self.storage):
                array = operand.storage.alive().astype(self.dtype)
                self.storage.set_apart(apart=self.storage.apart or operand.storage.apart)
                self._update_all(array, verb)
            else:
                each = replicas.value_of_each_copy(self, array, verb)
                self._update_all(self.storage.layout.place(each), verb)
            return self
        self._update_own(frame, operand, array, verb)
        return self

    def _update_own(self, frame: frames.Frame, operand: Any, array: jax.Array, verb: str) -> None:
        """Assigns this replica's copy."""
        # Read before the replicas synchronize: the first to continue changes a shared copy.
        remote = isinstance(self.storage, RemoteStorage)
        reads = verb != "assign" and not remote
        layout = self.storage.layout
        one = layout.one_copy or layout.partition.axis is not None  # whose parts all read together
        shared = one and self.strategy.num_replicas_in_sync > 1
        old = frame.get(self) if reads and shared else None
        if scopes.in_cross_replica_context():
            if not scopes.updating():
                array = replicas.value_of_each_copy(self, array, verb)
        elif not self.on_read:
            array = replicas.assigned(self, operand, array, verb, get_replica_context())
        if remote:
            frame.update(self, Operation(verb, (array,)))
            return
        with self.storage.changing:
            if reads and not shared:
                old = frame.get(self)
            frame.set(self, COMBINE[verb](old, array))

    def _update_copies(self, value: DistributedValues, verb: str) -> Variable:
        """Assigns to each copy its component."""
        arrays = [self.checked(component, verb) for component in value.values]
        with in_flight.dispatching:
            for copy, array in zip(self.values, arrays, strict=True):
                copy.combine(array, verb)
        return self

    def _update_all(self, placed: jax.Array, verb: str) -> None:
        """Assigns every copy from cross-replica context."""
        if isinstance(self.storage, RemoteStorage):
            self.storage.update(Operation(verb, (placed,)))
            return
        with in_flight.dispatching:  # no step or thread may assign between the read and the write
            with self.storage.changing:
                old = None if verb == "assign" else self.storage.alive()
                self.storage.array = COMBINE[verb](old, placed)
            server_traffic.note_change(self.storage, placed)

    def _scatter(self, kind: str, slices: Any) -> Variable:
        in_flight.require_not_forked()
        verb = f"scatter_{kind}"
        combine = COMBINE[verb]
        self.require_own_strategy(verb)
        slices = scattering.require_slices(self.name, kind, slices)
        scattering.require_kind(
            self.name,
            kind,
            self.aggregation,
            on_read=self.on_read,
            mirrored=not self.storage.layout.one_copy,
        )
        parts = (slices.values, slices.indices)
        frame = frames.current()
        if frame is None:
            in_flight.require_open()
            if any(isinstance(part, PerReplica) for part in parts):
                columns = [
                    part.values if isinstance(part, PerReplica) else [part] * len(self.values)
                    for part in parts
                ]
                for copy, *own in zip(self.values, *columns, strict=True):
                    copy._scatter(kind, IndexedSlices(*own))
                return self
            rows = self._rows(kind, slices)
            self._require_no_trace(rows[0], verb)
            values, indices = (self.storage.layout.beside(part) for part in rows)
            if isinstance(self.storage, RemoteStorage):
                self.storage.update(Operation(verb, (indices, values)))
                return self
            with in_flight.dispatching:
                with self.storage.changing:
                    self.storage.array = combine(self.storage.alive(), indices, values)
                server_traffic.note_change(self.storage, indices, values)
            return self
        own = [frame.own(part) if isinstance(part, DistributedValues) else part for part in parts]
        values, indices = self._rows(kind, IndexedSlices(*own))
        if not scopes.in_cross_replica_context():
            context = get_replica_context()
            values, indices = replicas.assigned_rows(self, (values, indices), context)
        if isinstance(self.storage, RemoteStorage):
            frame.update(self, Operation(verb, (indices, values)))
        elif self.storage.layout.partition.axis is not None:  # whose parts all read together
            frame.set(self, combine(frame.get(self), indices, values))
        else:
            with self.storage.changing:
                frame.set(self, combine(frame.get(self), indices, values))
        return self

    def _rows(self, kind: str, slices: IndexedSlices) -> scattering.Rows:
        return scattering.checked_rows(self.name, kind, slices, self.shape, self.dtype)

    def _scatter_nd(self, kind: str, indices: Any, updates: Any) -> Variable:
        if self.strategy.num_replicas_in_sync > 1:
            raise UnsupportedError(
                f"{self.name}.scatter_nd_{kind}: a variable with copies on several replicas can't "
                "be assigned element by element, as in TensorFlow. Use scatter_add and its like "
                "for rows, or assign the whole value."
            )
        new = scattering.scattered_nd(self.name, kind, self.value(), indices, updates)
        return self.assign(new)

    def _require_no_trace(self, array: jax.Array, verb: str) -> None:
        if isinstance(array, jax.core.Tracer):
            raise ContextError(
                f"{self.name}.{verb} was called inside jax.jit outside of strategy.run. Return "
                "the new value from the function and assign it outside."
            )

    def checked(self, value: Any, verb: str) -> jax.Array:
        """Returns a value as an array that can be assigned.

        Raises:
          ValueShapeError: The shape or dtype is not this variable's.
        """
        return checked_value(self, value, verb)

    def require_own_strategy(self, verb: str) -> None:
        """Checks that no other strategy is in scope, or runs the caller on its replicas.

        Raises:
          ContextError: Another one is, or does.
        """
        current = scopes.current_strategy()
        if self.strategy.distributed and current is not self.strategy and current.distributed:
            raise ContextError(
                f"{self.name} belongs to {self.strategy!r} and {verb} was called under "
                f"{current!r}. Use a variable under the strategy that made it."
            )

    @property
    def distribute_strategy(self) -> Host | None:
        """The strategy in whose scope the variable was made; None for the default strategy.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> with strategy.scope():
          ...     weight = dl.Variable(2.0)
          >>> weight.distribute_strategy is strategy
          True
        """
        return self.strategy if self.strategy.distributed else None

    @property
    def parameter_server(self) -> int | None:
        """The number of the parameter server that holds the variable; None without servers.

        Example:
          >>> import distlab as dl
          >>> cluster = dl.ClusterSpec({"worker": ["a:2711"], "ps": ["b:2711", "c:2711"]})
          >>> servers = [
          ...     dl.Server(cluster, job_name=job, task_index=n)
          ...     for job, n in [("worker", 0), ("ps", 0), ("ps", 1)]
          ... ]
          >>> resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
          >>> with dl.ParameterServerStrategy(resolver).scope():
          ...     [dl.Variable(0.0).parameter_server for _ in range(3)]
          [0, 1, 0]
        """
        return self.storage.layout.server

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        """Returns a new variable of the same strategy with the same value, as TensorFlow does."""
        self.require_own_strategy("copy.deepcopy")
        if frames.current() is not None:
            raise ContextError(
                f"{self.name} was copied inside a replica function. Copy it before the step."
            )
        require_not_staged(f"copy.deepcopy of {self.name}")
        new = object.__new__(Variable)
        new.__dict__.update({k: v for k, v in self.__dict__.items() if k != "values"})
        new.storage = self.storage.duplicate()
        memo[id(self)] = new
        _keep(new, next(_numbers))
        return new

    def _repr_html_(self) -> str:
        """Returns HTML for notebooks: the device of each copy and its first numbers."""
        from distlab.values.reprs import variable_html

        return variable_html(self)

    def __repr__(self) -> str:
        """Shows name, dtype, shape and layout; numbers would have to be copied."""
        return f"<Variable {self.name}: {self.dtype}{list(self.shape)}, {self.storage.layout.name}>"


# A variable is a leaf of a nest, as its value is, so that nests of both have one structure.
for _class in (Variable, VariableCopy):
    jax_internals.register_array_like(_class, _class.__jax_array__)


@verb
def _made(cls: type[Variable], **kwargs: Any) -> Any:
    """Makes a variable, without the creators that are in scope."""

    def make(arguments: dict[str, Any]) -> Variable:
        variable: Variable = object.__new__(cls)
        variable.__init__(**arguments)  # `cls()` would ask the creators again
        return variable

    return scopes.current_strategy().make_variable(make, kwargs)


def _require_name(name: Any) -> None:
    if not isinstance(name, str | None):
        raise ArgumentTypeError(
            f"A variable's name must be a string, got {shown(name)}. Leave it out for a default "
            "name."
        )


def _keep(variable: Variable, number: int) -> None:
    variable.__dict__.update(_number=number, _dependents={})
    _live[number] = variable
    _announce(variable, number)


def _announce(variable: Variable, number: int) -> None:
    """Emits the placement of a new variable, and later the release of its memory."""
    recorder = sink.recorder()
    if not recorder.enabled:
        return
    storage = variable.storage
    strategy, name, layout = variable.strategy.number, variable.name, storage.layout
    shape, dtype = list(variable.shape), str(variable.dtype)
    devices = storage.device_names()
    source = calling_line()
    size = math.prod(layout.part_shape(variable.shape)) * variable.dtype.itemsize

    def emit(action: Literal["place", "free"]) -> None:
        sink.recorder().emit(
            events.Placement(
                time_ns=time.monotonic_ns(),
                strategy=strategy,
                array=number,
                name=name,
                action=action,
                layout=layout.name,
                shape=shape,
                dtype=dtype,
                devices=devices,
                bytes_per_device=[size] * len(devices),
                server=layout.server,
                source=source,
                spec=layout.axes(len(shape)),
            )
        )

    emit("place")
    weakref.finalize(variable, emit, "free").atexit = False


def dependents_of_youngest(variables: Iterable[Variable]) -> dict[int, object]:
    """Returns what lives, by `id`, as long as the variable made last: models come after counts."""
    return max(variables, key=lambda variable: variable._number)._dependents


def description(variable: Variable) -> dict[str, Any]:
    """Returns what another process has to know of a variable on a parameter server."""
    return {name: getattr(variable, name) for name in _DESCRIBED}


def linked(strategy: Host, storage: RemoteStorage, about: dict[str, Any]) -> Variable:
    """Returns this process's variable for a value on a parameter server, which stays there."""
    variable = object.__new__(Variable)
    variable.__dict__.update(about)
    variable.strategy, variable.on_read, variable.storage = strategy, False, storage
    _keep(variable, next(_numbers))
    return variable


def is_variable(value: Any) -> bool:
    """Returns whether a value is a variable or a copy of one."""
    return type(value) is Variable or type(value) is VariableCopy


def live() -> list[Variable]:
    """Returns all existing variables, in the order in which they were made."""
    return [v for reference in _live.valuerefs() if (v := reference()) is not None]
