"""The values of variables inside a replica function: those of its own replica."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Protocol, final

import jax

from distlab.devices import jax_internals
from distlab.errors import ContextError
from distlab.variables.protocol import StoredVariable


class Frame(Protocol):
    """One replica's view of the variables."""

    def get(self, variable: StoredVariable) -> jax.Array:
        """Returns this replica's present value of a variable."""

    def set(self, variable: StoredVariable, value: jax.Array) -> None:
        """Assigns this replica's value of a variable."""


@final
class TracedFrame:
    """The variables that one trace of a replica function reads and writes.

    Args:
      values: The traced value of each variable before the step.

    Attributes:
      read: The variables whose value before the step the function reads.
      written: The variables that the function assigns, with their last value.
    """

    def __init__(self, values: dict[StoredVariable, jax.Array]) -> None:
        self.read: set[StoredVariable] = set()
        self.written: dict[StoredVariable, jax.Array] = {}
        self._values = values
        self._trace = jax_internals.current_trace()

    def get(self, variable: StoredVariable) -> jax.Array:
        """Returns the traced value of a variable.

        Raises:
          ContextError: The variable was made during this trace.
        """
        if variable in self.written:
            return self.written[variable]
        if variable not in self._values:
            raise ContextError(
                f"{variable.name} was made while `run` traced the function that uses it. Make "
                "variables in strategy.scope(), before the step."
            )
        self.read.add(variable)
        return self._values[variable]

    def set(self, variable: StoredVariable, value: jax.Array) -> None:
        """Assigns the traced value of a variable.

        Raises:
          ContextError: The call is inside a transformation in the function (scan, cond,
            jit, grad), whose traced values can't leave it.
        """
        _require_trace(self._trace, variable)
        self.written[variable] = value


@final
class LoopFrame:
    """The variables in one iteration of a loop that carries those that it assigns.

    Args:
      outer: The variables around the loop.
      carried: The traced values that the iteration receives.

    Attributes:
      written: The variables that are carried or assigned, with their last value.
    """

    def __init__(self, outer: Frame, carried: dict[StoredVariable, jax.Array]) -> None:
        self.written = carried
        self._outer = outer
        self._trace = jax_internals.current_trace()

    def get(self, variable: StoredVariable) -> jax.Array:
        """Returns the carried value of a variable, or that from outside of the loop."""
        return self.written[variable] if variable in self.written else self._outer.get(variable)

    def set(self, variable: StoredVariable, value: jax.Array) -> None:
        """Assigns a variable; raises what `TracedFrame.set` raises."""
        _require_trace(self._trace, variable)
        self.written[variable] = value


def _require_trace(trace: object, variable: StoredVariable) -> None:
    if jax_internals.current_trace() is not trace:
        raise ContextError(
            f"{variable.name} was assigned inside jax.lax.scan, cond, jit or grad, within the "
            "function that run traces. Use dl.scan, which may assign variables, in place of "
            "jax.lax.scan; elsewhere return the value and assign it afterwards."
        )


@final
class EagerFrame:
    """The variables of an eager replica function, which reads and writes its copies directly.

    Args:
      replica: The replica's number.
      device: The replica's device.
      before: Collects the array of each variable from before its first assignment.
    """

    def __init__(
        self, replica: int, device: jax.Device, before: dict[StoredVariable, jax.Array]
    ) -> None:
        self._replica = replica
        self._device = device
        self._before = before

    def get(self, variable: StoredVariable) -> jax.Array:
        """Returns the replica's copy, moved to the replica's device if it is elsewhere."""
        copies = variable.storage.copies()
        own = copies[self._replica] if self._replica in copies else variable.storage.first()
        return own if own.devices() == {self._device} else jax.device_put(own, self._device)

    def set(self, variable: StoredVariable, value: jax.Array) -> None:
        """Writes the replica's copy.

        Raises:
          ContextError: The value is being traced.
        """
        if isinstance(value, jax.core.Tracer):
            raise ContextError(
                f"{variable.name} was assigned inside jax.jit, grad, scan or another "
                "transformation, while functions run eagerly. Return the value from it and assign "
                "it afterwards."
            )
        self._before.setdefault(variable, variable.storage.array)
        variable.storage.set_copy(self._replica, value)


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
        yield
    finally:
        _thread.frame = outer
