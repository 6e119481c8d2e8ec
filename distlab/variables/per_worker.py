"""A variable of which each worker of a `ParameterServerStrategy` has its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import jax
import numpy as np

from distlab.devices import jax_internals
from distlab.values.operators import ArrayOperators
from distlab.values.sealed import Sealed
from distlab.variables.variable import Variable


@final
class PerWorkerVariable(ArrayOperators, Sealed):
    """A variable on each worker, none of which is synchronized (TensorFlow's `PerWorkerVariable`).

    `distlab.Variable(..., per_worker_variable=True)` makes it in the scope of a
    `ParameterServerStrategy`. A function that a worker runs reads and assigns that worker's
    variable; outside of workers it is the coordinator's own.

    Args:
      own: Returns the variable of the calling thread's worker, or of the coordinator.
      read_all: Returns the value of every worker.
      workers: The number of workers.
      elsewhere: What names the variable to workers in other processes; None for threads.

    Attributes:
      elsewhere: What names the variable to workers in other processes; None for threads.
    """

    def __init__(
        self,
        own: Callable[[], Variable],
        read_all: Callable[[], list[jax.Array]],
        workers: int,
        elsewhere: Any = None,
    ) -> None:
        self._own = own
        self._read_all = read_all
        self._workers = workers
        self.elsewhere = elsewhere

    @property
    def own(self) -> Variable:
        """The variable of the calling thread's worker, or of the coordinator."""
        return self._own()

    @property
    def name(self) -> str:
        """The name that pages and messages show."""
        return self.own.name

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each value."""
        return self.own.shape

    @property
    def dtype(self) -> Any:
        """The dtype of each value."""
        return self.own.dtype

    @property
    def trainable(self) -> bool:
        """False: no optimizer updates it."""
        return False

    def read_all(self) -> list[jax.Array]:
        """Returns the value of every worker, in the order of workers."""
        return self._read_all()

    def value(self) -> jax.Array:
        """Returns the value of the calling thread's worker, or of the coordinator."""
        return self.own.value()

    def read_value(self) -> jax.Array:
        """Returns `value()` (TensorFlow's other name for it)."""
        return self.value()

    def numpy(self) -> np.ndarray:
        """Waits for the value and returns it as a NumPy array."""
        return self.own.numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Converts the value for NumPy functions; waits for it."""
        return self.own.__array__(dtype, copy)

    def assign(
        self, value: Any, use_locking: bool = False, name: Any = None, read_value: bool = True
    ) -> Variable:
        """Assigns the worker's value; see `Variable.assign`."""
        return self.own.assign(value, use_locking, name, read_value)

    def assign_add(
        self, value: Any, use_locking: bool = False, name: Any = None, read_value: bool = True
    ) -> Variable:
        """Adds to the worker's value; see `Variable.assign_add`."""
        return self.own.assign_add(value, use_locking, name, read_value)

    def assign_sub(
        self, value: Any, use_locking: bool = False, name: Any = None, read_value: bool = True
    ) -> Variable:
        """Subtracts from the worker's value; see `Variable.assign_sub`."""
        return self.own.assign_sub(value, use_locking, name, read_value)

    def __repr__(self) -> str:
        """Shows name, dtype, shape and the number of workers."""
        return (
            f"<PerWorkerVariable {self.name}: {self.dtype}{list(self.shape)}, "
            f"{self._workers} workers>"
        )


jax_internals.register_array_like(PerWorkerVariable, PerWorkerVariable.__jax_array__)
