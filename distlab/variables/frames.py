"""The values of variables inside a replica function: those of its own replica."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, final

import jax
import jax.numpy as jnp

from distlab.context import scopes
from distlab.devices import jax_internals
from distlab.devices.mesh import AXIS
from distlab.errors import ContextError, UnsupportedError
from distlab.user_code import calling_line
from distlab.values.checks import require_alive, require_components
from distlab.values.distributed import DistributedValues, Mirrored, PerReplica
from distlab.variables import kept_traces, server_traffic
from distlab.variables.operations import Operation
from distlab.variables.protocol import StoredVariable
from distlab.variables.remote_storage import RemoteStorage
from distlab.variables.storage import giving

Read: TypeAlias = Callable[[StoredVariable, int], jax.Array]
"""Returns a stored copy of a variable."""


def stored(variable: StoredVariable, number: int) -> jax.Array:
    """Returns a copy in this process."""
    return variable.storage.copy(number)


@final
class Undo:
    """Assignments of copies of variables that are put back where the function fails.

    Of a divided variable, of which a replica has a part, each replica's value is kept whole until
    all have assigned theirs: one that reads after it assigned finds its own.
    """

    def __init__(self) -> None:
        self._before: dict[StoredVariable, jax.Array] = {}
        self._own: dict[StoredVariable, dict[int, jax.Array]] = {}
        self._over = False

    def copy(self, variable: StoredVariable, number: int, read: Read) -> jax.Array:
        """Returns the present value of a copy."""
        own = self._own.get(variable, {})
        return own[number] if number in own else read(variable, number)

    def store(self) -> None:
        """Stores each replica's part of what it assigned to divided variables."""
        with giving:
            for variable, own in self._own.items():
                self.keep(variable, variable.storage.array)
                for number, value in own.items():
                    variable.storage.set_copy(number, value)
            self._own.clear()

    def keep(self, variable: StoredVariable, array: jax.Array) -> None:
        """Keeps what a variable held before it was assigned, if it is the first assignment."""
        self._before.setdefault(variable, array)

    def set_copy(self, variable: StoredVariable, number: int, value: jax.Array) -> None:
        """Writes a copy."""
        with giving:
            if self._over:
                raise SystemExit
            if variable.storage.layout.partition.axis is not None:
                self._own.setdefault(variable, {})[number] = value
                return
            self.keep(variable, variable.storage.array)
            variable.storage.set_copy(number, value)

    def restore(self) -> None:
        """Puts the values back, all of them whatever interrupts it; nothing is assigned later."""
        interrupt = None
        while True:
            try:
                self._restore()
                break
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _restore(self) -> None:
        with giving:
            self._over = True
            for variable, array in self._before.items():
                variable.storage.array = array


class Frame(ABC):
    """One replica's view of the variables."""

    @abstractmethod
    def get(self, variable: StoredVariable) -> jax.Array:
        """Returns this replica's present value of a variable."""

    @abstractmethod
    def set(self, variable: StoredVariable, value: jax.Array) -> None:
        """Assigns this replica's value of a variable."""

    @abstractmethod
    def update(self, variable: StoredVariable, operation: Operation) -> None:
        """Changes a variable on a parameter server."""

    @abstractmethod
    def get_copy(self, variable: StoredVariable, number: int | None) -> jax.Array:
        """Returns the present value of one copy of a variable; None is this replica's."""

    @abstractmethod
    def set_copy(self, variable: StoredVariable, number: int | None, value: jax.Array) -> None:
        """Assigns one copy of a variable; None is this replica's."""

    @abstractmethod
    def note_kept(self) -> None:
        """Notes that a trace which JAX may keep depends on what is so now, as on a variable."""

    @abstractmethod
    def _replica_id(self) -> Any:
        """Returns the replica's number."""

    def note_made(self, made: Sequence[StoredVariable]) -> None:
        """Notes the variables that the function has made so far."""
        del made  # a frame without a trace finds them anyway

    def own(self, value: DistributedValues) -> Any:
        """Returns this replica's component of a distributed value."""
        if isinstance(value, Mirrored):
            require_alive(value.array, "The value of an assignment")
        if isinstance(value, PerReplica):
            replicas = scopes.current_strategy().num_replicas_in_sync
            require_alive(value.stacked, "The value of an assignment")
            require_components(value, "The value of an assignment", replicas)
        self.note_kept()
        return value.component(self._replica_id())


class _FrameOfTrace(Frame):
    """One replica's view of the variables in a trace."""

    def __init__(self) -> None:
        self._trace = jax_internals.current_trace()

    def get_copy(self, variable: StoredVariable, number: int | None) -> jax.Array:
        """Returns the traced value of one copy."""
        own = self.get(variable)
        if number is None or variable.storage.layout.one_copy:
            return own
        copies: jax.Array = jax.lax.all_gather(own, AXIS)
        return copies[number]

    def set_copy(self, variable: StoredVariable, number: int | None, value: jax.Array) -> None:
        """Assigns the traced value of one copy."""
        if number is not None and not variable.storage.layout.one_copy:
            value = jnp.where(jax.lax.axis_index(AXIS) == number, value, self.get(variable))
        self.set(variable, value)

    def _replica_id(self) -> Any:
        return jax.lax.axis_index(AXIS)

    def note_kept(self) -> None:
        """Notes that a trace which JAX may keep depends on what is so now, as on a variable."""
        if _thread.frame is self and jax_internals.being_staged(within=self._trace):
            kept_traces.note_held()

    def _require_own_trace(self, variable: StoredVariable) -> None:
        """Checks that an assignment is not inside a transformation in the function."""
        if jax_internals.current_trace() is not self._trace:
            raise ContextError(
                f"{variable.name} was assigned inside jax.lax.scan, cond, jit or grad, within the "
                "function that run traces. Use dl.scan, which may assign variables, instead of "
                "jax.lax.scan; elsewhere return the value and assign it afterwards."
            )


@final
class TracedFrame(_FrameOfTrace):
    """The variables that one trace of a replica function reads and writes.

    `updates` are the operations on variables of parameter servers, in order.
    """

    def __init__(self, values: dict[StoredVariable, jax.Array]) -> None:
        super().__init__()
        self.made: Sequence[StoredVariable] = ()
        self.read: set[StoredVariable] = set()
        self.written: dict[StoredVariable, jax.Array] = {}
        self.updates: list[tuple[StoredVariable, Operation]] = []
        self._values = values

    def get(self, variable: StoredVariable) -> jax.Array:
        """Returns the traced value of a variable."""
        self.note_kept()
        if variable in self.written:
            return self.written[variable]
        if isinstance(variable.storage, RemoteStorage):
            return self._updated(variable)
        return self._before(variable)

    def _before(self, variable: StoredVariable) -> jax.Array:
        """Returns the value from before the step."""
        if variable in self.made:
            return variable.storage.first()  # the function is traced again, with its value
        if variable not in self._values:
            raise ContextError(
                f"{variable.name} was made while `run` traced the function that uses it. Make "
                "variables in strategy.scope(), before the step."
            )
        self.read.add(variable)
        return self._values[variable]

    def note_made(self, made: Sequence[StoredVariable]) -> None:
        """Notes the variables that the function has made so far."""
        self.made = made

    def set(self, variable: StoredVariable, value: jax.Array) -> None:
        """Assigns the traced value of a variable."""
        if isinstance(variable.storage, RemoteStorage):
            self.update(variable, Operation("assign", (value,)))
            return
        self._require_own_trace(variable)
        self.written[variable] = value
        kept_traces.note_assigned()

    def update(self, variable: StoredVariable, operation: Operation) -> None:
        """Adds an operation to those that the program returns; raises what `set` raises."""
        self._require_own_trace(variable)
        self.updates.append((variable, operation))
        kept_traces.note_assigned()

    def _updated(self, variable: StoredVariable) -> jax.Array:
        """Returns the value after the function's own operations, and reads it only if need be."""
        operations = [operation for updated, operation in self.updates if updated is variable]
        assigned = [n for n, operation in enumerate(operations) if operation.verb == "assign"]
        value = None if assigned else self._before(variable)
        for operation in operations[assigned[-1] if assigned else 0 :]:
            value = operation.applied_to(value)
        assert value is not None
        return value


class _InnerFrame(_FrameOfTrace):
    """The variables in a function that JAX transforms, within a frame or outside of all."""

    _where: str
    _instead: str

    def __init__(self, outer: Frame | None, values: dict[StoredVariable, jax.Array]) -> None:
        super().__init__()
        self.written = values
        self._outer = outer

    def get(self, variable: StoredVariable) -> jax.Array:
        """Returns the value of a variable in this function, or that from outside of it."""
        self.note_kept()
        if variable in self.written:
            return self.written[variable]
        if self._outer is not None:
            return self._outer.get(variable)
        with use(None):
            return variable.value()

    def set(self, variable: StoredVariable, value: jax.Array) -> None:
        """Assigns a variable; raises what `TracedFrame.set` raises."""
        self._require_own_trace(variable)
        self.written[variable] = value
        kept_traces.note_assigned()

    def update(self, variable: StoredVariable, operation: Operation) -> None:
        """Refuses: the operations of several calls would be one assignment, and lose others'."""
        raise UnsupportedError(
            f"{variable.name} is on a parameter server, which {operation.verb} in {self._where} "
            f"can't reach. {self._instead}"
        )

    def note_made(self, made: Sequence[StoredVariable]) -> None:
        """Notes the variables that the function has made so far."""
        if self._outer is not None:
            self._outer.note_made(made)


@final
class LoopFrame(_InnerFrame):
    """The variables in one iteration of a loop that carries those that it assigns."""

    _where = "dl.scan"
    _instead = (
        "Call strategy.run for each step, or sum up what to add in the carry and add it after the "
        "loop."
    )


@final
class GradientFrame(_InnerFrame):
    """The variables of a function that is differentiated by some of them."""

    _where = "the function of value_and_grad"
    _instead = "Return the value from it, and assign it afterwards."

    def note_kept(self) -> None:
        """Notes that a trace which JAX may keep depends on what is so now, as on a variable."""
        super().note_kept()
        if self._outer is not None:
            self._outer.note_kept()  # an eager one runs it as Python from then on

    def _replica_id(self) -> Any:
        return 0 if self._outer is None else self._outer._replica_id()


@final
class EagerFrame(Frame):
    """The variables of an eager function, which reads and writes one replica's copies directly."""

    def __init__(
        self,
        replica: int,
        device: jax.Device,
        undo: Undo,
        lines: dict[StoredVariable, str] | None = None,
        read: Read = stored,
    ) -> None:
        self._replica = replica
        self._device = device
        self._undo = undo
        self._lines = lines
        self._read = read
        self.read_inside = False

    def get(self, variable: StoredVariable) -> jax.Array:
        """Returns the replica's copy, moved to the replica's device if it is elsewhere."""
        return self.get_copy(variable, self._replica)

    def set(self, variable: StoredVariable, value: jax.Array) -> None:
        """Writes the replica's copy."""
        self.set_copy(variable, self._replica, value)

    def get_copy(self, variable: StoredVariable, number: int | None) -> jax.Array:
        """Returns a copy, moved to the replica's device if it is elsewhere."""
        self.note_kept()
        with jax_internals.outside_of_traces():
            number = self._replica if number is None else number
            copy = self._undo.copy(variable, number, self._read)
            server_traffic.note_read(variable.storage)
            return copy if copy.devices() == {self._device} else jax.device_put(copy, self._device)

    def set_copy(self, variable: StoredVariable, number: int | None, value: jax.Array) -> None:
        """Writes a copy."""
        if isinstance(value, jax.core.Tracer):
            raise ContextError(
                f"{variable.name} was assigned inside jax.jit, grad, scan or another "
                "transformation, while functions run eagerly. Return the value from it and assign "
                "it afterwards."
            )
        if self._lines is not None and variable not in self._lines:
            self._lines[variable] = calling_line()
        number = self._replica if number is None else number
        if isinstance(variable.storage, RemoteStorage):
            variable.storage.set_copy(number, value)
        else:
            server_traffic.note_change(variable.storage, value)
            self._undo.set_copy(variable, number, value)
        kept_traces.note_assigned()

    def update(self, variable: StoredVariable, operation: Operation) -> None:
        """Changes a variable on a parameter server at once, also when the function fails later."""
        assert isinstance(variable.storage, RemoteStorage)
        variable.storage.update(operation)
        kept_traces.note_assigned()

    def _replica_id(self) -> int:
        return self._replica

    def note_kept(self) -> None:
        """Notes that a trace which JAX may keep depends on what is so now, as on a variable."""
        if jax_internals.being_staged():
            kept_traces.note_held()
            self.read_inside = True


class _Thread(threading.local):
    def __init__(self) -> None:
        self.frame: Frame | None = None


_thread = _Thread()


def current() -> Frame | None:
    """Returns the frame of this thread's replica function; None outside of one."""
    return _thread.frame


def is_eager() -> bool:
    """Returns whether this thread runs a replica function eagerly."""
    return isinstance(_thread.frame, EagerFrame)


@contextlib.contextmanager
def use(frame: Frame | None) -> Iterator[None]:
    """Makes a frame current for a block of code."""
    outer, _thread.frame = _thread.frame, frame
    try:
        with kept_traces.apart(replica_function=frame is not None):
            yield
    finally:
        _thread.frame = outer
