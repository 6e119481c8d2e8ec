"""The leaves of an object that are state, by name.

A name is the way to the leaf: keys, indices and attributes, joined by `/`. It does not depend on
the replicas, so that it is the same under any strategy.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, TypeAlias

import jax
import numpy as np

from distlab.integrations.orbax.kinds import kind_of, refusal
from distlab.variables.variable_copy import VariableCopy

Visit: TypeAlias = Callable[[str, Any], Any]
"""Receives the name of a leaf and the leaf; returns the leaf that takes its place."""

_REFUSED: Final = (bytes, VariableCopy)
"""Types that can't be saved, and must not be lost in silence."""

_SETTINGS: Final = (bool, int, float, complex, str, bytes, np.ndarray, np.generic)
"""Attributes of these types say how an object works; they are no state of it."""

_FOREIGN: Final = {"distlab", "jax", "jaxlib", "numpy", "optax", *sys.stdlib_module_names}
"""Packages whose objects hold nothing of the user's."""


def walk(value: Any, name: str, visit: Visit) -> Any:
    """Visits the leaves of an object that are state; returns it, or its nest with new leaves."""
    return _Walk(visit).nest(value, name, settings=False)


class _Walk:
    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._inside: list[Any] = []

    def nest(self, value: Any, name: str, *, settings: bool) -> Any:
        """Visits a nest; where it is an attribute, numbers in it are settings."""
        if value is None or (settings and isinstance(value, _SETTINGS)):
            return value
        if isinstance(value, _REFUSED):
            raise refusal(name, value)
        if kind_of(value) is not None:
            return self._visit(name, value)
        if any(value is outer for outer in self._inside):
            return value  # a part that knows its whole
        self._inside.append(value)
        try:
            return self._parts(value, name, settings=settings)
        finally:
            self._inside.pop()

    def _parts(self, value: Any, name: str, *, settings: bool) -> Any:
        if hasattr(type(value), "checkpoint_parts"):  # a checkpoint in a checkpoint
            parts = value.checkpoint_parts
            for part, inner in list(parts.items()):
                parts[part] = self.nest(inner, _join(name, part), settings=False)
        elif _is_nnx(value):
            self._nnx(value, name)
        elif _is_keras(value):
            for part, inner in _keras_parts(value).items():
                self.nest(inner, _join(name, part), settings=False)
        elif not jax.tree_util.all_leaves([value]):
            return self._node(value, name, settings=settings)
        elif _has_state(value):
            for attribute, inner in list(vars(value).items()):
                new = self.nest(inner, _join(name, attribute), settings=True)
                if new is not inner:
                    setattr(value, attribute, new)
        return value

    def _node(self, value: Any, name: str, *, settings: bool) -> Any:
        visited = itertools.count()  # the first is the nest, and the others are its parts
        pairs, structure = jax.tree_util.tree_flatten_with_path(
            value, is_leaf=lambda _: next(visited) > 0
        )
        parts = [part for _, part in pairs]
        new = [
            self.nest(part, _join(name, _key(path[0])), settings=settings) for path, part in pairs
        ]
        if all(a is b for a, b in zip(parts, new, strict=True)):
            return value
        return jax.tree_util.tree_unflatten(structure, new)

    def _nnx(self, value: Any, name: str) -> None:
        from flax import nnx

        state = nnx.state(value)
        present = nnx.to_pure_dict(state)
        new = self.nest(present, name, settings=False)
        if new is not present:
            nnx.replace_by_pure_dict(state, new)
            nnx.update(value, state)


def _is_nnx(value: Any) -> bool:
    """Returns whether a value is an object of Flax NNX, which changes in place."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(value, nnx.Pytree)


def _is_keras(value: Any) -> bool:
    keras: Any = sys.modules.get("keras")
    if not hasattr(keras, "Layer"):
        return False
    return isinstance(value, keras.Layer | keras.optimizers.Optimizer | keras.Metric)


def is_unbuilt_optimizer(value: Any) -> bool:
    """Returns whether a value is an optimizer of Keras that has not made its variables yet."""
    keras: Any = sys.modules.get("keras")
    if not _is_keras(value) or not isinstance(value, keras.optimizers.Optimizer):
        return False
    # The variables of one with an inner one are numbered after it is built.
    return not value.built and not hasattr(value, "inner_optimizer")


def give_later(optimizer: Any, number: int, array: Any) -> None:
    """Keeps the value of a variable that an optimizer will make, for `integrations.keras`."""
    vars(optimizer).setdefault("_distlab_later", {})[number] = array


def _keras_parts(value: Any) -> dict[str, Any]:
    """Returns the variables by number: Keras' names count the objects of a process."""
    parts = {str(number): variable for number, variable in enumerate(value.variables)}
    optimizer = getattr(value, "optimizer", None)
    if optimizer is None:
        return parts
    if value.built and not optimizer.built:  # `fit` would make its variables too late
        strategy = getattr(value, "distribute_strategy", None)
        with contextlib.nullcontext() if strategy is None else strategy.scope():
            optimizer.build(value.trainable_variables)
    return parts | {"optimizer": optimizer}


def _has_state(value: Any) -> bool:
    """Returns whether the attributes of an object may be a user's state."""
    if isinstance(value, ModuleType | type) or not hasattr(value, "__dict__"):
        return False
    module = type(value).__module__
    ours = module.startswith("distlab.integrations.")  # such as a metric of `dl.metrics`
    return ours or module.partition(".")[0] not in _FOREIGN


def _join(name: str, part: str) -> str:
    return f"{name}/{part}" if name else part


def _key(key: Any) -> str:
    """Returns the name of a key of a pytree's path."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
