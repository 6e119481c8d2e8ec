"""The variables as a replica function sees them: its own copies."""

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
        """Returns this replica's value of a variable, as assigned so far."""

    def set(self, variable: StoredVariable, value: jax.Array) -> None:
        """Assigns this replica's value of a variable."""


@final
class TracedFrame:
    """What one trace of a replica function reads and writes.

    Attributes:
      read: the variables whose value before the step it needs.
      written: the variables it assigned, with their last value.
    """

    def __init__(self, values: dict[StoredVariable, jax.Array]) -> None:
        self.read: set[StoredVariable] = set()
        self.written: dict[StoredVariable, jax.Array] = {}
        self._values = values
        self._trace = jax_internals.current_trace()

    def get(self, variable: StoredVariable) -> jax.Array:
        """Returns the traced value of a variable."""
        if variable in self.written:
            return self.written[variable]
        if variable not in self._values:
            raise ContextError(
                f"{variable.name} was made while its function was being traced for `run`. Make "
                "variables in strategy.scope(), before the step."
            )
        self.read.add(variable)
        return self._values[variable]

    def set(self, variable: StoredVariable, value: jax.Array) -> None:
        """Assigns the traced value of a variable.

        Raises:
          ContextError: inside a transformation in the function (scan, cond,
            jit, grad), out of which a traced value can't be kept.
        """
        if jax_internals.current_trace() is not self._trace:
            raise ContextError(
                f"{variable.name} was assigned inside jax.lax.scan, cond, jit or grad, within the "
                "function that run traces. Return the value from there and assign it after."
            )
        self.written[variable] = value


@final
class EagerFrame:
    """What one replica's Python reads and writes: its copy, at once.

    Args:
      replica: its number.
      device: its device.
      before: gets the arrays of variables as they were before any assignment.
    """

    def __init__(
        self, replica: int, device: jax.Device, before: dict[StoredVariable, jax.Array]
    ) -> None:
        self._replica = replica
        self._device = device
        self._before = before

    def get(self, variable: StoredVariable) -> jax.Array:
        """Returns the replica's copy; another strategy's variable on this replica's device."""
        copies = variable.storage.copies()
        own = copies[self._replica] if self._replica in copies else variable.storage.first()
        return own if own.devices() == {self._device} else jax.device_put(own, self._device)

    def set(self, variable: StoredVariable, value: jax.Array) -> None:
        """Writes the replica's copy.

        Raises:
          ContextError: the value is being traced.
        """
        if isinstance(value, jax.core.Tracer):
            raise ContextError(
                f"{variable.name} was assigned inside jax.jit, grad, scan or another "
                "transformation, while functions run eagerly. Return the value from it and assign "
                "after."
            )
        self._before.setdefault(variable, variable.storage.array)
        variable.storage.set_copy(self._replica, value)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.frame: Frame | None = None


_thread = _Thread()


def current() -> Frame | None:
    """Returns the frame of the replica function this thread is in, None outside of one."""
    return _thread.frame


def assigns_at_once() -> bool:
    """Says whether replicas assign one after another, each seeing the last one's value."""
    return isinstance(_thread.frame, EagerFrame)


@contextlib.contextmanager
def use(frame: Frame | None) -> Iterator[None]:
    """Makes a frame current for a block of code."""
    outer, _thread.frame = _thread.frame, frame
    try:
        yield
    finally:
        _thread.frame = outer
