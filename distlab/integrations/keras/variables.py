"""Keras' variables while a model trains: read and assigned where their values are.

Keras gives a model's arrays to its step and takes them back at the end of an epoch. In between,
its own variables have no value; those of a strategy's model are read from the replicas' devices.

In a function that `strategy.run` runs, variables can be read, and the program is compiled again
when they have changed. They can't be assigned there: the assignment would be made once, with a
tracer, or by each replica. Keras' own steps, and `stateless_call`, do neither.
"""

from __future__ import annotations

from typing import Any, final

from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.backend.jax.core import JaxVariable

from distlab.errors import ContextError
from distlab.integrations.keras.held import held_of
from distlab.integrations.keras.patching import Function, patch
from distlab.variables import frames
from distlab.variables.outside_reads import note


@final
class _Read:
    """A variable that a replica function has read from outside."""

    def __init__(self, variable: Any) -> None:
        self._variable = variable

    def get_raw_value(self) -> Any:
        """Returns its present array, which lies elsewhere while its model trains."""
        held = held_of(self._variable)
        if held is not None and held.away:
            return held.variable.storage.array
        return self._variable._value

    def set_raw_value(self, value: Any) -> None:
        """Gives it another array."""
        self._variable._value = value


def patch_variables() -> None:
    """Makes the variables of a model that trains readable and assignable at any time."""

    @patch(JaxVariable, "_direct_assign")
    def _direct_assign(old: Function, self: Any, value: Any) -> None:
        if frames.current() is not None:
            raise ContextError(
                f"{self.path} is a variable of Keras, and was assigned in a function that "
                "strategy.run runs on each replica. Use model.fit or train_on_batch; or pass "
                "the arrays in args=(...), and return those of optimizer.stateless_apply and "
                "model.stateless_call."
            )
        held = held_of(self)
        if held is None or not held.away or held.comes_back(value):
            old(self, value)

    value_of = JaxVariable.value.fget

    def value(self: Any) -> Any:
        """The current value of the variable (numpy array or backend tensor)."""
        if frames.current() is not None and not in_stateless_scope():
            note(self, self.path, _Read(self))
        held = held_of(self) if self._value is None else None
        if held is None or not held.away or in_stateless_scope():
            return value_of(self)
        return self._maybe_autocast(held.show())

    JaxVariable.value = property(value)
