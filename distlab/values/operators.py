"""Python's operators for classes that have a `value()`."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import jax
import numpy as np

from distlab.devices import in_flight
from distlab.errors import ArgumentTypeError, UnsupportedError
from distlab.text.shown import shown

# fmt: off
_OF_THE_VALUE: Final = frozenset({
    "T", "all", "any", "argmax", "argmin", "astype", "at", "clip", "conj", "dot", "flatten",
    "imag", "item", "itemsize", "max", "mean", "min", "mT", "nbytes", "prod", "ravel", "real",
    "reshape", "round", "squeeze", "std", "sum", "tolist", "transpose", "var",
})
# fmt: on
"""The attributes of arrays that a variable has, too."""

_COPIED: Final = frozenset({"item", "itemsize", "nbytes", "tolist"})
"""Those that compute nothing."""

_INSTEAD: Final = {
    **dict.fromkeys(("ref", "experimental_ref"), "the variable itself, which may be a key"),
    **dict.fromkeys(("device", "handle"), "value().devices()"),
    **dict.fromkeys(("initial_value", "initialized_value"), "the array that it was made with"),
    **dict.fromkeys(("initializer", "is_initialized"), "it at once: it has a value from the start"),
    **dict.fromkeys(("op", "graph", "to_proto"), "the variable itself: there is no graph"),
    "constraint": "assign with the value that the constraint returns",
    "count_up_to": "assign_add(1)",
    "eval": "numpy()",
    "load": "assign(value)",
    "get_shape": "shape",
    "set_shape": "a variable that is made with that shape",
    "sparse_read": "jnp.take(variable, indices, axis=0)",
    "gather_nd": "variable[tuple(jnp.moveaxis(indices, -1, 0))]",
    "batch_scatter_update": "assign(variable.at[rows, indices].set(updates))",
}
"""What takes the place of those attributes of `tf.Variable` that a variable has not."""


class _Shaped(Protocol):
    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""


class ArrayOperators:
    """Applies operators, `jnp` functions and NumPy functions to `value()`.

    `==` compares with numbers and arrays element by element, as other operators do. With another
    object of this kind it is identity, so that variables can be found in lists and dictionaries.
    """

    __slots__ = ()

    __array_priority__: Final = 100
    """As that of JAX's arrays: NumPy leaves `numpy_array + variable` to the variable."""

    @abstractmethod
    def value(self) -> jax.Array:
        """Returns the array that operations apply to."""

    def __jax_array__(self) -> jax.Array:
        """Converts this object for operations of JAX, which in a forked child would never end."""
        in_flight.require_not_forked()
        return self.value()

    @abstractmethod
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Converts this object for NumPy functions."""

    @property
    def ndim(self: _Shaped) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self: _Shaped) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def block_until_ready(self) -> Any:
        """Waits for the value, and returns this object; `jax.block_until_ready` calls it."""
        jax.block_until_ready(self.value())
        return self

    if not TYPE_CHECKING:  # else type checkers accept every name

        def __getattr__(self, name: str) -> Any:
            """Returns an attribute of the value that libraries use, such as `real` or `astype`."""
            if name in _OF_THE_VALUE:
                return getattr(self.value() if name in _COPIED else _operand(self), name)
            told = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _INSTEAD:
                told += f", as tf.Variable has. Use {_INSTEAD[name]}."
            raise AttributeError(told)

        def __setitem__(self, index: Any, value: Any) -> NoReturn:
            """Refuses to assign elements, as `tf.Variable` and JAX's arrays do."""
            del value
            raise ArgumentTypeError(
                f"A {type(self).__name__} is assigned as a whole, got an assignment to its "
                f"[{shown(index)}]. Write v.assign(v.value().at[index].set(value)) for a variable "
                "v, or at[index].add(value) for +=."
            )

    def __getitem__(self, index: Any) -> jax.Array:
        return _operand(self)[index]

    def __iter__(self) -> Iterator[jax.Array]:
        return iter(_operand(self))  # JAX clamps indices, so __getitem__ alone would never end

    def __format__(self, spec: str) -> str:
        """Formats the value by a format such as `.2f`; without one, shows this object."""
        return format(self.value(), spec) if spec else str(self)

    def __float__(self) -> float:
        return float(self.value())

    def __int__(self) -> int:
        return int(self.value())

    def __bool__(self) -> bool:
        return bool(self.value())

    def __len__(self) -> int:
        return len(self.value())

    def __neg__(self) -> jax.Array:
        return -_operand(self)

    def __abs__(self) -> jax.Array:
        return abs(_operand(self))

    def __add__(self, other: Any) -> jax.Array:
        return _operand(self) + _operand(other)

    def __radd__(self, other: Any) -> jax.Array:
        return _operand(other) + _operand(self)

    def __sub__(self, other: Any) -> jax.Array:
        return _operand(self) - _operand(other)

    def __rsub__(self, other: Any) -> jax.Array:
        return _operand(other) - _operand(self)

    def __mul__(self, other: Any) -> jax.Array:
        return _operand(self) * _operand(other)

    def __rmul__(self, other: Any) -> jax.Array:
        return _operand(other) * _operand(self)

    def __truediv__(self, other: Any) -> jax.Array:
        return _operand(self) / _operand(other)

    def __rtruediv__(self, other: Any) -> jax.Array:
        return _operand(other) / _operand(self)

    def __floordiv__(self, other: Any) -> jax.Array:
        return _operand(self) // _operand(other)

    def __rfloordiv__(self, other: Any) -> jax.Array:
        return _operand(other) // _operand(self)

    def __mod__(self, other: Any) -> jax.Array:
        return _operand(self) % _operand(other)

    def __rmod__(self, other: Any) -> jax.Array:
        return _operand(other) % _operand(self)

    def __pow__(self, other: Any) -> jax.Array:
        return _operand(self) ** _operand(other)

    def __rpow__(self, other: Any) -> jax.Array:
        return _operand(other) ** _operand(self)

    def __matmul__(self, other: Any) -> jax.Array:
        return _operand(self) @ _operand(other)

    def __rmatmul__(self, other: Any) -> jax.Array:
        return _operand(other) @ _operand(self)

    def __invert__(self) -> jax.Array:
        return ~_operand(self)

    def __and__(self, other: Any) -> jax.Array:
        return _operand(self) & _operand(other)

    def __rand__(self, other: Any) -> jax.Array:
        return _operand(other) & _operand(self)

    def __or__(self, other: Any) -> jax.Array:
        return _operand(self) | _operand(other)

    def __ror__(self, other: Any) -> jax.Array:
        return _operand(other) | _operand(self)

    def __xor__(self, other: Any) -> jax.Array:
        return _operand(self) ^ _operand(other)

    def __rxor__(self, other: Any) -> jax.Array:
        return _operand(other) ^ _operand(self)

    def __lt__(self, other: Any) -> jax.Array:
        return _operand(self) < _operand(other)

    def __le__(self, other: Any) -> jax.Array:
        return _operand(self) <= _operand(other)

    def __gt__(self, other: Any) -> jax.Array:
        return _operand(self) > _operand(other)

    def __ge__(self, other: Any) -> jax.Array:
        return _operand(self) >= _operand(other)

    def __eq__(self, other: object) -> Any:
        """Compares with a number or array element by element, with other objects by identity."""
        return _operand(self) == other if isinstance(other, _COMPARABLE) else self is other

    def __ne__(self, other: object) -> Any:
        """Compares with a number or array element by element, with other objects by identity."""
        return _operand(self) != other if isinstance(other, _COMPARABLE) else self is not other

    __hash__ = object.__hash__

    def _refuse_in_place(self, _: Any) -> NoReturn:
        """Refuses `v += x`, which would make `v` another name for a new array."""
        raise UnsupportedError(
            f"{self!r} can't be changed by an operator such as +=. Write v.assign_add(x), "
            "v.assign_sub(x) or v.assign(v * x); for a new array write w = v + x."
        )

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = _refuse_in_place
    __imod__ = __ipow__ = __imatmul__ = __iand__ = __ior__ = __ixor__ = _refuse_in_place


_COMPARABLE = bool | int | float | complex | np.ndarray | np.generic | jax.Array


def _operand(value: Any) -> Any:
    return value.__jax_array__() if isinstance(value, ArrayOperators) else value
