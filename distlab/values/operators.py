"""Python's operators for classes that have a `value()`."""

from __future__ import annotations

import math
import operator
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeAlias

import jax
import numpy as np

from distlab.devices import in_flight
from distlab.errors import UnsupportedError

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

_Binary: TypeAlias = Callable[[Any, Any], jax.Array]


class _Shaped(Protocol):
    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""


def _operand(value: Any) -> Any:
    return value.__jax_array__() if isinstance(value, ArrayOperators) else value


def _unary(operation: Callable[[Any], Any]) -> Callable[[Any], jax.Array]:
    return lambda self: operation(_operand(self))


def _binary(operation: Callable[[Any, Any], Any]) -> tuple[_Binary, _Binary]:
    """Returns an operator's method, and that for the object on its right."""
    return (
        lambda self, other: operation(_operand(self), _operand(other)),
        lambda self, other: operation(_operand(other), _operand(self)),
    )


class ArrayOperators:
    """Base class whose operators, and functions of JAX and NumPy, apply to `value()`.

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
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

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

    __neg__ = _unary(operator.neg)
    __abs__ = _unary(operator.abs)
    __invert__ = _unary(operator.invert)
    __add__, __radd__ = _binary(operator.add)
    __sub__, __rsub__ = _binary(operator.sub)
    __mul__, __rmul__ = _binary(operator.mul)
    __truediv__, __rtruediv__ = _binary(operator.truediv)
    __floordiv__, __rfloordiv__ = _binary(operator.floordiv)
    __mod__, __rmod__ = _binary(operator.mod)
    __pow__, __rpow__ = _binary(operator.pow)
    __matmul__, __rmatmul__ = _binary(operator.matmul)
    __and__, __rand__ = _binary(operator.and_)
    __or__, __ror__ = _binary(operator.or_)
    __xor__, __rxor__ = _binary(operator.xor)
    __lt__, __le__ = _binary(operator.lt)[0], _binary(operator.le)[0]
    __gt__, __ge__ = _binary(operator.gt)[0], _binary(operator.ge)[0]

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
