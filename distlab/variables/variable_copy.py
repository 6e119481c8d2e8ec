"""One replica's copy of a variable."""

from __future__ import annotations

from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.context import scopes
from distlab.context.replica_context import get_replica_context
from distlab.devices.requirements import require_not_staged
from distlab.errors import UnsupportedError
from distlab.values import copy_events
from distlab.variables import frames, replicas, scattering
from distlab.variables.operations import COMBINE
from distlab.variables.protocol import StoredVariable
from distlab.variables.verbs import VariableVerbs


@final
class VariableCopy(VariableVerbs):
    """A copy of a variable, as `Variable.values` and `extended.update` provide it.

    An assignment changes this copy only. `number` is None for each replica's copy, in a program.
    """

    __slots__ = ("number", "variable")

    def __init__(self, variable: StoredVariable, number: int | None) -> None:
        self.variable = variable
        self.number = number

    @property
    def name(self) -> str:
        """The variable's name."""
        return self.variable.name

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the copy."""
        return self.variable.shape

    @property
    def dtype(self) -> Any:
        """The dtype of the copy."""
        return self.variable.dtype

    @property
    def trainable(self) -> bool:
        """True if the variable is trainable."""
        return self.variable.trainable

    def value(self) -> jax.Array:
        """Returns the copy's value, on its own device; in a step, on the replica's."""
        frame = frames.current()
        if frame is not None:
            return frame.get_copy(self.variable, self.number)
        require_not_staged(f"A read of {self!r}")
        return self.variable.storage.copy(self.number or 0)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Converts this copy for NumPy functions; waits for its value."""
        strategy = self.variable.strategy.number
        return copy_events.to_host(self.value(), dtype, copy, strategy=strategy, what=self.name)

    def _update(self, operand: Any, verb: str) -> VariableCopy:
        variable = self.variable
        variable.require_own_strategy(verb)
        if frames.current() is None and variable.storage.layout.partition.axis is not None:
            raise UnsupportedError(
                f"{self.name} is divided over the replicas and has no copies, so {verb} of one is "
                f"not defined. Assign the variable: {self.name}.{verb}(value)."
            )
        array = variable.checked(operand, verb)
        context = scopes.current_replica()
        if context is not None and context.strategy is variable.strategy:
            array = replicas.in_turn(variable, array, verb, get_replica_context())
        self.combine(array, verb)
        return self

    def combine(self, array: jax.Array, verb: str) -> None:
        """Assigns an array of the copy's shape and dtype."""
        with self.variable.storage.changing:
            self._write(COMBINE[verb](self.value(), self._beside(array)))

    def _scatter(self, kind: str, slices: Any) -> VariableCopy:
        self.variable.require_own_strategy(f"scatter_{kind}")
        slices = scattering.require_slices(self.name, kind, slices)
        rows = scattering.checked_rows(self.name, kind, slices, self.shape, self.dtype)
        with self.variable.storage.changing:
            values, indices = map(self._beside, rows)
            self._write(COMBINE[f"scatter_{kind}"](self.value(), indices, values))
        return self

    def _scatter_nd(self, kind: str, indices: Any, updates: Any) -> VariableCopy:
        self.variable.require_own_strategy(f"scatter_nd_{kind}")
        with self.variable.storage.changing:
            parts = (self._beside(jnp.asarray(part)) for part in (indices, updates))
            self._write(scattering.scattered_nd(self.name, kind, self.value(), *parts))
        return self

    def _beside(self, array: jax.Array) -> jax.Array:
        """Moves an array to the copy's device."""
        if frames.current() is not None:
            return array
        old = self.value()
        return jax.device_put(array, next(iter(old.devices()))) if old.committed else array

    def _write(self, new: jax.Array) -> None:
        frame = frames.current()
        if frame is not None:
            frame.set_copy(self.variable, self.number, new)
        else:
            self.variable.storage.set_copy(self.number or 0, new)

    def __repr__(self) -> str:
        """Shows the number of the copy and the variable."""
        return f"<copy {self.number} of {self.variable!r}>"
