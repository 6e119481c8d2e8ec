"""The text of distributed values: the numbers of each component, bounded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

_MOST_COMPONENTS: Final = 16
_MOST_NUMBERS: Final = 32
"""Components with more numbers are shown in part."""
_MOST_BYTES: Final = 1 << 20
"""Those with more bytes without numbers, as all would be read from the device."""
_MOST_CHARACTERS: Final = 400


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
    """Returns the text of a component, such as `Array([0., 1., ..., 9.], dtype=float32)`."""
    if not hasattr(array, "dtype"):
        return repr(array)
    if array.dtype == object:
        return repr(array[place])
    shape = tuple(index.stop for index in place if isinstance(index, slice))
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) or array.nbytes > _MOST_BYTES:
        return f"{array.dtype}{list(shape)}"
    shown = np.asarray(array)[place]
    text = np.array2string(shown, separator=", ", threshold=_MOST_NUMBERS, edgeitems=2)
    partly = shown.size > _MOST_NUMBERS or (shown.size == 0 and shown.ndim > 1)
    return f"Array({' '.join(text.split())}, {f'{shape=}, ' * partly}dtype={array.dtype})"
