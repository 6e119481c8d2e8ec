"""Python's operators for classes that have a `value()`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
import numpy as np


class ArrayOperators:
    """Applies operators, `jnp` functions and NumPy functions to `value()`.

    Equality stays identity, so that variables can be dictionary keys.
    """

    __slots__ = ()

    @abstractmethod
    def value(self) -> jax.Array:
        """Returns the array that operations apply to."""

    def __jax_array__(self) -> jax.Array:
        """Converts this object for `jnp` functions."""
        return self.value()

    @abstractmethod
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Converts this object for NumPy functions."""

    def __getitem__(self, index: Any) -> jax.Array:
        return self.value()[index]

    def __float__(self) -> float:
        return float(self.value())

    def __int__(self) -> int:
        return int(self.value())

    def __bool__(self) -> bool:
        return bool(self.value())

    def __len__(self) -> int:
        return len(self.value())

    def __neg__(self) -> jax.Array:
        return -self.value()

    def __abs__(self) -> jax.Array:
        return abs(self.value())

    def __add__(self, other: Any) -> jax.Array:
        return self.value() + _operand(other)

    def __radd__(self, other: Any) -> jax.Array:
        return _operand(other) + self.value()

    def __sub__(self, other: Any) -> jax.Array:
        return self.value() - _operand(other)

    def __rsub__(self, other: Any) -> jax.Array:
        return _operand(other) - self.value()

    def __mul__(self, other: Any) -> jax.Array:
        return self.value() * _operand(other)

    def __rmul__(self, other: Any) -> jax.Array:
        return _operand(other) * self.value()

    def __truediv__(self, other: Any) -> jax.Array:
        return self.value() / _operand(other)

    def __rtruediv__(self, other: Any) -> jax.Array:
        return _operand(other) / self.value()

    def __floordiv__(self, other: Any) -> jax.Array:
        return self.value() // _operand(other)

    def __rfloordiv__(self, other: Any) -> jax.Array:
        return _operand(other) // self.value()

    def __mod__(self, other: Any) -> jax.Array:
        return self.value() % _operand(other)

    def __rmod__(self, other: Any) -> jax.Array:
        return _operand(other) % self.value()

    def __pow__(self, other: Any) -> jax.Array:
        return self.value() ** _operand(other)

    def __rpow__(self, other: Any) -> jax.Array:
        return _operand(other) ** self.value()

    def __matmul__(self, other: Any) -> jax.Array:
        return self.value() @ _operand(other)

    def __rmatmul__(self, other: Any) -> jax.Array:
        return _operand(other) @ self.value()

    def __lt__(self, other: Any) -> jax.Array:
        return self.value() < _operand(other)

    def __le__(self, other: Any) -> jax.Array:
        return self.value() <= _operand(other)

    def __gt__(self, other: Any) -> jax.Array:
        return self.value() > _operand(other)

    def __ge__(self, other: Any) -> jax.Array:
        return self.value() >= _operand(other)


def _operand(value: Any) -> Any:
    return value.value() if isinstance(value, ArrayOperators) else value
