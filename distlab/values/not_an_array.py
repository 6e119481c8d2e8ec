"""Errors for per-replica and remote values that are used as arrays."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

import jax
import numpy as np

from distlab.errors import StructureError

_COMPARABLE = bool | int | float | complex | np.ndarray | np.generic | jax.Array

_OF_ARRAYS = frozenset({"numpy", "tolist"})
"""Of arrays and of TensorFlow's tensors, beside the attributes of `jax.Array`."""


class NotAnArray:
    """Base class of values that are no arrays: their operations raise with the remedy."""

    __slots__ = ()

    _passing: ClassVar[str] = "Pass it in args=(...) to a function that strategy.run runs, "
    """Use of the value as it is, for messages."""

    _reading: ClassVar[str] = (
        "combine the values with strategy.reduce or gather, or read each one with "
        "strategy.experimental_local_results"
    )
    """Ways to its numbers, for messages."""

    _what: ClassVar[str] = "has a value for each replica"
    """Reason why it is no array, for messages."""

    def brief(self) -> str:
        """Returns a text without numbers, for messages."""
        return repr(self)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise StructureError(
            f"{self.brief()} {self._what}, so it can't be used as one array or number. "
            f"{self._passing}{self._reading}."
        )

    __jax_array__ = __index__ = _refuse
    __len__ = __iter__ = __getitem__ = _refuse
    __neg__ = __pos__ = __abs__ = __invert__ = __round__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __eq__(self, other: object) -> bool:
        """Refuses arrays, numbers and other values of this kind; else it is identity."""
        if isinstance(other, _COMPARABLE | NotAnArray) and other is not self:
            self._refuse()
        return self is other

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        """Returns true, so that `value or default` works as with tf.distribute's values."""
        if self.is_flag():
            self._refuse()
        return True

    def __getattr__(self, name: str) -> NoReturn:
        """Raises the reason for attributes of arrays."""
        if name in _OF_ARRAYS or (not name.startswith("_") and hasattr(jax.Array, name)):
            raise AttributeError(
                f"{self.brief()} {self._what}, so it has no {name!r}, as an array has. "
                f"{self._passing}{self._reading}."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def is_flag(self) -> bool:
        """Returns whether each replica's value is a truth value, or one whole number."""
        return False

    def __format__(self, spec: str) -> str:
        return self._refuse() if spec else str(self)


def brief(value: Any) -> str:
    """Returns the text of any value for a message: no numbers of distributed values."""
    return value.brief() if isinstance(value, NotAnArray) else repr(value)
