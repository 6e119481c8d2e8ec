"""One replica's copy of a variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.values import copy_events
from distlab.values.operators import ArrayOperators
from distlab.variables import frames
from distlab.variables.protocol import StoredVariable


@final
class VariableCopy(ArrayOperators):
    """A copy of a variable, as `Variable.values` and `extended.update` provide it.

    An assignment changes this copy only.

    Attributes:
      variable: The variable.
      number: The replica's number.
    """

    __slots__ = ("number", "variable")

    def __init__(self, variable: StoredVariable, number: int) -> None:
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
        """Whether the variable is trainable."""
        return self.variable.trainable

    def value(self) -> jax.Array:
        """Returns the copy's value, on its own device."""
        frame = frames.current()
        if frame is not None:
            return frame.get(self.variable)
        return self.variable.storage.copies()[self.number]

    def read_value(self) -> jax.Array:
        """Returns `value()` (TensorFlow's other name for it)."""
        return self.value()

    def numpy(self) -> np.ndarray:
        """Waits for the value and returns it as a NumPy array."""
        return self.__array__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Converts this copy for NumPy functions; waits for its value."""
        strategy = self.variable.strategy.number
        return copy_events.to_host(self.value(), dtype, strategy=strategy, what=self.name)

    def assign(self, value: Any) -> VariableCopy:
        """Assigns this copy and returns it; raises what `Variable.assign` raises."""
        return self._update(value, "assign", lambda _, new: new)

    def assign_add(self, delta: Any) -> VariableCopy:
        """Adds to this copy's value and returns the copy."""
        return self._update(delta, "assign_add", jnp.add)

    def assign_sub(self, delta: Any) -> VariableCopy:
        """Subtracts from this copy's value and returns the copy."""
        return self._update(delta, "assign_sub", jnp.subtract)

    def _update(self, operand: Any, verb: str, combine: Callable[[Any, Any], Any]) -> VariableCopy:
        array = self.variable.checked(operand, verb)
        frame = frames.current()
        old = self.value()
        if frame is not None:
            frame.set(self.variable, combine(old, array))
        else:
            own = jax.device_put(array, next(iter(old.devices()))) if old.committed else array
            self.variable.storage.set_copy(self.number, combine(old, own))
        return self

    def __repr__(self) -> str:
        """Shows the number of the copy and the variable."""
        return f"<copy {self.number} of {self.variable!r}>"
