"""The text of distributed values: the numbers of each component, bounded.

Only what is shown is read from the devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

_MOST_COMPONENTS: Final = 16
_MOST_NUMBERS: Final = 32
"""Components with more numbers are shown in part."""
_IN_A_ROW: Final = 6
_ROWS: Final = 2
_MOST_CHARACTERS: Final = 400

_FAILURES: Final = (RuntimeError, TypeError, ValueError, AttributeError, IndexError)
"""A deleted array, a computation that failed."""


def components_text(
    kind: str, components: Iterable[tuple[int, Any, tuple[Any, ...]]], count: int
) -> str:
    """Returns the text of a distributed value, in TensorFlow's form."""
    lines: list[str] = []
    for replica, array, place in components:
        if len(lines) == _MOST_COMPONENTS:
            lines.append(f"  ...: {count - _MOST_COMPONENTS} more")
            break
        text = _array_text(array, place)
        cut = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
        lines.append(f"  {replica}: {cut}")
    return "\n".join((f"{kind}:{{", ",\n".join(lines), "}"))


def _array_text(array: Any, place: tuple[Any, ...]) -> str:
    """Returns the text of a component, such as `Array([0., 1., ...], dtype=float32)`."""
    if not hasattr(array, "dtype"):
        return repr(array)
    if array.dtype == object:
        return repr(array[place])
    shape = tuple(index.stop for index in place if isinstance(index, slice))
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return f"{array.dtype}{list(shape)}"
    try:
        shown = _shown(array, place, shape)
    except _FAILURES as error:
        deleted = isinstance(array, jax.Array) and array.is_deleted()
        why = "deleted" if deleted else f"not readable, {type(error).__name__}"
        return f"{array.dtype}{list(shape)}, {why}"
    partly = shown.shape != shape or (shown.size == 0 and shown.ndim > 1)
    return f"Array({_numbers(shown, shape)}, {f'{shape=}, ' * partly}dtype={array.dtype})"


def _shown(array: Any, place: tuple[Any, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Returns a component's first elements."""
    if int(np.prod(shape, dtype=np.int64)) > _MOST_NUMBERS:
        most = [*[1] * (len(shape) - 2), _ROWS, _IN_A_ROW][-len(shape) :]
        lengths = iter([min(pair) for pair in zip(shape, most, strict=True)])
        place = tuple(slice(next(lengths)) if isinstance(n, slice) else n for n in place)
    if array.size <= _MOST_NUMBERS:
        return np.asarray(array)[place]  # no program to cut it on the device
    return np.asarray(array[place])


def _numbers(shown: np.ndarray, shape: tuple[int, ...]) -> str:
    if not shape:
        return np.array2string(shown)
    parts = [_numbers(part, shape[1:]) for part in shown]
    return f"[{', '.join([*parts, '...'][: len(parts) + (shape[0] > len(parts))])}]"
