"""Keras' variables, read and assigned where their values are: on the replicas' devices."""

from __future__ import annotations

from typing import Any, Final

import jax
import numpy as np
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.backend.jax.core import JaxVariable
from keras.src.layers.layer import Layer

from distlab.integrations.keras.held import held_of, hold, hold_outside, is_held_from_start
from distlab.integrations.keras.patching import Function, patch
from distlab.variables import frames, replicas

_VALUE: Final = "_value"


def patch_variables() -> None:
    """Gives Keras' variables the values of distlab's."""
    JaxVariable._value = property(_value, _set_value)
    JaxVariable.distlab_variable = property(_variable)

    for name in ("assign_add", "assign_sub"):

        @patch(JaxVariable, name)
        def assign_sum(old: Function, self: Any, value: Any, *, name: str = name) -> Any:
            # By its own verb: variables that replicas share add up what each of them adds.
            held = held_of(self)
            if held is None or in_stateless_scope() or frames.current() is None:
                return old(self, value)
            if type(value) not in {int, float}:
                value = self._convert_to_tensor(value, dtype=self.dtype)
            getattr(held.variable, name)(value)
            return self.value

    @patch(JaxVariable, "__array__")
    def array(old: Function, self: Any, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """Reads the variable of distlab, which emits that it is copied to the host."""
        held = held_of(self)
        if held is None or in_stateless_scope() or frames.current() is not None:
            return np.array(old(self, dtype), copy=copy)
        return held.variable.__array__(dtype, copy)

    _patch_making()


def _patch_making() -> None:
    @patch(JaxVariable, "_initialize_with_initializer")
    def _initialize_with_initializer(old: Function, self: Any, initializer: Any) -> None:
        """Makes a variable that the first step keeps, such as one of a metric."""
        if frames.current() is None or frames.is_eager() or replicas.makes_again():
            old(self, initializer)
        else:
            replicas.made_once(lambda: old(self, initializer), self.path)

    @patch(Layer, "_maybe_build")
    def _maybe_build(old: Function, self: Any, call_spec: Any) -> None:
        """Makes the variables of a layer in the first step, once for all replicas."""
        if self.built or frames.current() is None:
            old(self, call_spec)
        elif replicas.makes_again():  # a layer that the function makes at each call
            old(self, call_spec)
            if self.variables:
                replicas.made_once(lambda: self, self.name)  # raises
        else:
            replicas.made_once(lambda: old(self, call_spec), self.name)
            old(self, call_spec)  # a replica's own layer; one that all share is built by now


def _variable(self: Any) -> Any:
    """Returns the variable of distlab that has the value; None where Keras has it."""
    held = held_of(self)
    return None if held is None else held.variable


def _value(self: Any) -> Any:
    """Returns the array of a variable; None before it is initialized."""
    held = held_of(self)
    if held is None:
        array = self.__dict__.get(_VALUE)
        if array is None or frames.current() is None or _is_traced(array):
            return array
        held = hold_outside(self)
    return held.value()


def _set_value(self: Any, array: Any) -> None:
    """Assigns the array of a variable; None, with which Keras frees memory, changes nothing."""
    held = held_of(self)
    if held is not None:
        if array is not None:
            held.set(array)
        return
    before = self.__dict__.get(_VALUE)
    if before is None and array is not None and not _is_traced(array) and is_held_from_start():
        hold(self, array)
    elif before is None or frames.current() is None or _is_traced(before):
        # Also of a variable that a replica function makes, uses and forgets, such as a metric's.
        self.__dict__[_VALUE] = array
    else:
        hold_outside(self).set(array)


def _is_traced(array: Any) -> bool:
    return isinstance(array, jax.core.Tracer)
