"""NumPy's arrays that no device holds: masked ones, with fields, of other byte orders, too wide."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

_WIDEST: Final = {"f": 8, "c": 16}
"""The bytes of the widest numbers on devices, by the kind of dtype."""


def are_of_devices(dtype: np.dtype[Any]) -> bool:
    """Returns whether devices can hold numbers of a dtype, whatever the byte order."""
    match dtype.kind:
        case "b" | "i" | "u":
            return True
        case "f" | "c":
            return dtype.itemsize <= _WIDEST[dtype.kind]
        case "V":  # bfloat16 and smaller ones, but not bytes
            return jnp.issubdtype(dtype, np.number)
    return False


def is_plain(value: Any) -> bool:
    """Returns whether an array or scalar of NumPy is nothing but numbers, texts or objects."""
    return value.dtype.names is None and not isinstance(value, np.ma.MaskedArray)


def is_of_integers(value: Any) -> bool:
    """Returns whether a value is JAX's gradient of whole numbers, an array of nothing."""
    is_array = isinstance(value, np.ndarray | np.generic | jax.Array)
    return is_array and value.dtype == jax.dtypes.float0


def unshared(value: Any) -> Any:
    """Returns a copy of a NumPy array, whose memory JAX may use; other values as they are."""
    return np.array(value) if isinstance(value, np.ndarray) else value


def refusal_of(value: Any, what: str) -> str | None:
    """Returns why no array of numbers can be made of a value; None for what may be one."""
    if is_of_integers(value):
        return (
            f"{what} is of dtype float0: the gradient of whole numbers, which has none, as JAX "
            "has it with allow_int=True. Leave it out, or convert the numbers to real ones."
        )
    if not isinstance(value, np.ndarray | np.generic) or is_plain(value):
        return None
    if isinstance(value, np.ma.MaskedArray):
        return (
            f"{what} is a masked array, whose mask would be lost. Pass array.filled(number), and "
            "numpy.ma.getmaskarray(array) as an array of its own."
        )
    fields = ", ".join(map(repr, value.dtype.names or ()))
    return (
        f"{what} is an array with the fields {fields}, which no device can hold. Pass a dict of "
        "them: {name: array[name] for name in array.dtype.names}."
    )
