"""Values given to variables, as arrays of the variable's shape and dtype."""

from __future__ import annotations

from typing import Any, Final, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np

from distlab.devices.jax_internals import placing
from distlab.errors import StructureError, ValueShapeError
from distlab.text.shown import shown
from distlab.values.attributes import why_no_array
from distlab.values.checks import require_alive, require_plain_array
from distlab.values.nests import require_nest
from distlab.values.operators import ArrayOperators
from distlab.values.plain_arrays import unshared
from distlab.values.stacks import require_no_stack


class _Typed(Protocol):
    """A named value of fixed shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: Any


def as_value(value: Any, dtype: Any, what: str) -> jax.Array:
    """Returns an array-like or a variable as an array."""
    if isinstance(value, ArrayOperators):
        value = value.value()
    require_alive(value, f"The value of {what}")
    require_no_stack(value, what)
    require_plain_array(value, f"The value of {what}")
    require_nest(value, f"The value of {what}")
    if dtype is not None:
        _require_dtype(dtype, what)
        _require_kept(value, jnp.dtype(dtype), what)
    try:
        with placing():
            return jnp.asarray(unshared(value), dtype=dtype)
    except StructureError as error:  # of one of distlab's own values
        raise ValueShapeError(f"{what}: {error}") from error
    except Exception as error:
        why = why_no_array(value, error)
        if why is None:
            raise
        raise ValueShapeError(
            f"{what} needs an array or numbers, got a {type(value).__name__}: {shown(value)}. "
            f"{why} Pass an array, or a list of numbers."
        ) from error


def _require_kept(value: Any, dtype: np.dtype[Any], what: str) -> None:
    """Checks that Python's numbers stay what they are in a dtype.

    `jnp.asarray(1.5, dtype="int32")` is 1, and 300 is 44 in uint8. Arrays have a dtype of their
    own, and whoever converts them says so.
    """
    if not isinstance(value, bool | int | float | complex | list | tuple):
        return
    try:
        given = np.asarray(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return  # it holds something else, of which JAX decides
    if given.dtype.kind not in "biufc" or not given.size:
        return
    if not _in_kind(given, _kind(dtype)).all():
        raise ValueShapeError(
            f"{what} needs numbers of {dtype}, got {shown(value)}, which would become others. "
            "Convert them, or use another dtype for the variable."
        )
    if _kind(dtype) == "i":
        limits = cast(Any, jnp.iinfo)(dtype)  # knows int4, too
        least, most = int(limits.min), int(limits.max)
        if given.real.min() < least or given.real.max() > most:
            raise ValueShapeError(
                f"{what} needs numbers of {dtype}, from {least} to {most}, got {shown(value)}. "
                "Use another dtype for the variable."
            )
    elif _becomes_infinite(given, dtype):
        largest = float(cast(Any, jnp.finfo)(dtype).max)
        raise ValueShapeError(
            f"{what} needs numbers of {dtype}, of at most {largest:g}, got {shown(value)}, which "
            "would become infinite. Use another dtype for the variable."
        )


def _becomes_infinite(numbers: np.ndarray, dtype: np.dtype[Any]) -> bool:
    """Returns whether a finite number is none in a dtype of smaller ones."""
    with np.errstate(over="ignore", invalid="ignore"):
        kept = np.isfinite(numbers.astype(dtype))
    return bool((np.isfinite(numbers) & ~kept).any())


def _kind(dtype: np.dtype[Any]) -> str:
    """Returns the letter of a dtype's kind, also of JAX's own dtypes."""
    for letter, kind in (("b", jnp.bool_), ("i", jnp.integer), ("f", jnp.floating)):
        if jnp.issubdtype(dtype, kind):
            return letter
    return "c"


def _in_kind(numbers: np.ndarray, kind: str) -> Any:
    """Returns which numbers are truth values ("b"), whole ("i"), real ("f"), or complex ("c")."""
    if kind == "c":
        return np.ones_like(numbers, bool)
    real = numbers.imag == 0
    if kind == "f":
        return real
    if kind == "i":
        return real & (np.floor(numbers.real) == numbers.real)
    return real & ((numbers == 0) | (numbers == 1))


def _require_dtype(dtype: Any, what: str) -> None:
    try:
        jnp.zeros((), dtype)
    except Exception as error:
        raise ValueShapeError(
            f"The dtype of {what} must be one of JAX's, got {shown(dtype)}. Pass for example "
            "jnp.float32, or leave it out."
        ) from error


_ADDING: Final = ("assign_add", "assign_sub")


def checked_value(variable: _Typed, value: Any, verb: str) -> jax.Array:
    """Returns a value as an array that can be assigned to a variable."""
    array = as_value(value, None, f"{variable.name}.{verb}")
    keys = jnp.issubdtype(variable.dtype, jax.dtypes.prng_key)
    if verb in _ADDING and (keys or variable.dtype == bool):
        what = "random keys" if keys else "truth values"
        way = "jax.random.fold_in(key, n)" if keys else "jnp.logical_xor(old, other)"
        raise ValueShapeError(
            f"{variable.name} holds {what}, which {verb} can't change. Assign what it is to be: "
            f"{variable.name}.assign({way})."
        )
    weak = not keys and (array.aval.weak_type or not hasattr(value, "dtype"))
    if array.shape != variable.shape or (array.dtype != variable.dtype and not weak):
        way = ", such as one of jax.random.split" if keys else " (array.astype changes the dtype)"
        raise ValueShapeError(
            f"{variable.name} is {variable.dtype}{list(variable.shape)}, and {verb} got "
            f"{array.dtype}{list(array.shape)}. Pass a value of that shape and dtype{way}."
        )
    if weak:
        _require_kept(value, variable.dtype, f"{variable.name}.{verb}")
    return array if keys else array.astype(variable.dtype)
