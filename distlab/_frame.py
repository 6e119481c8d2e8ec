"""The variables that a replica function reads and writes while it is traced."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, final

import jax

from distlab import _jax_internals
from distlab._mesh import ReplicaMesh
from distlab.errors import ContextError

if TYPE_CHECKING:
    from distlab._variable import Variable


@final
class Frame:
    """What one trace of a replica function sees of the variables.

    Attributes:
      mesh: the replicas the function is traced for.
      read: the variables whose value before the step it needs.
      written: the variables it assigned, with their last value.
    """

    def __init__(self, mesh: ReplicaMesh, values: dict[Variable, jax.Array]) -> None:
        self.mesh = mesh
        self._trace = _jax_internals.current_trace()
        self.read: set[Variable] = set()
        self.written: dict[Variable, jax.Array] = {}
        self._values = values

    def get(self, variable: Variable) -> jax.Array:
        """Returns this replica's value of a variable, as assigned so far."""
        if variable in self.written:
            return self.written[variable]
        if variable not in self._values:
            raise ContextError(
                f"{variable.name} was made while its function was being traced for `run`. Make "
                "variables in strategy.scope(), before the step."
            )
        self.read.add(variable)
        return self._values[variable]

    def set(self, variable: Variable, value: jax.Array) -> None:
        """Assigns this replica's value of a variable.

        Raises:
          ContextError: inside a transformation in the function (scan, cond,
            jit, grad), out of which a traced value can't be kept.
        """
        if _jax_internals.current_trace() is not self._trace:
            raise ContextError(
                f"{variable.name} was assigned inside jax.lax.scan, cond, jit or grad, within the "
                "function that run traces. Return the value from there and assign it after."
            )
        self.written[variable] = value


class _Thread(threading.local):
    def __init__(self) -> None:
        self.frame: Frame | None = None


_thread = _Thread()


def current() -> Frame | None:
    """Returns the frame of the trace this thread is in, None outside of one."""
    return _thread.frame


@contextlib.contextmanager
def use(frame: Frame | None) -> Iterator[None]:
    """Makes a frame current for a block of code."""
    outer, _thread.frame = _thread.frame, frame
    try:
        yield
    finally:
        _thread.frame = outer
