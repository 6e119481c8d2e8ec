"""Keras' variables while a model trains: read and assigned where their values are.

Keras gives a model's arrays to its step and takes them back at the end of an epoch. In between,
its own variables have no value; those of a strategy's model are read from the replicas' devices.
"""

from __future__ import annotations

from typing import Any

from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.backend.jax.core import JaxVariable

from distlab.integrations.keras.held import held_of
from distlab.integrations.keras.patching import Function, patch


def patch_variables() -> None:
    """Makes the variables of a model that trains readable and assignable at any time."""

    @patch(JaxVariable, "_direct_assign")
    def _(old: Function) -> Function:
        def _direct_assign(self: Any, value: Any) -> None:
            held = held_of(self)
            if held is None or not held.away or held.comes_back(value):
                old(self, value)

        return _direct_assign

    value_of = JaxVariable.value.fget

    def value(self: Any) -> Any:
        """The current value of the variable (numpy array or backend tensor)."""
        held = held_of(self) if self._value is None else None
        if held is None or not held.away or in_stateless_scope():
            return value_of(self)
        return self._maybe_autocast(held.show())

    JaxVariable.value = property(value)
