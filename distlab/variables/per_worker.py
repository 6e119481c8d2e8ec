"""A variable of which each worker of a `ParameterServerStrategy` has its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import jax
import numpy as np

from distlab.devices import jax_internals
from distlab.variables.variable import Variable
from distlab.variables.verbs import VariableVerbs


@final
class PerWorkerVariable(VariableVerbs):
    """A variable on each worker, none of which is synchronized (TensorFlow's `PerWorkerVariable`).

    `distlab.Variable(..., per_worker_variable=True)` makes it in the scope of a
    `ParameterServerStrategy`. A function that a worker runs reads and assigns that worker's
    variable; outside of workers it is the coordinator's own.

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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Converts the value for NumPy functions; waits for it."""
        return self.own.__array__(dtype, copy)

    def _update(self, operand: Any, verb: str) -> Any:
        return self.own._update(operand, verb)

    def _scatter(self, kind: str, slices: Any) -> Any:
        return self.own._scatter(kind, slices)

    def _scatter_nd(self, kind: str, indices: Any, updates: Any) -> Any:
        return self.own._scatter_nd(kind, indices, updates)

    def __repr__(self) -> str:
        """Shows name, dtype, shape and the number of workers."""
        return (
            f"<PerWorkerVariable {self.name}: {self.dtype}{list(self.shape)}, "
            f"{self._workers} workers>"
        )


jax_internals.register_array_like(PerWorkerVariable, PerWorkerVariable.__jax_array__)
