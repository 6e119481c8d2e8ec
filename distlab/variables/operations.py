"""The operations that change a variable, by name.

A variable in another process receives operations instead of new values, so that those of several
workers are all applied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jax.numpy as jnp

from distlab.variables import scattering

COMBINE: Final[dict[str, Callable[..., Any]]] = {
    "assign": lambda _, new: new,
    "assign_add": jnp.add,
    "assign_sub": jnp.subtract,
    **{f"scatter_{kind}": combine for kind, combine in scattering.COMBINE.items()},
}
"""The new value from the present one and the operands: a value, or indices and rows."""


class Operation(NamedTuple):
    """A change of a variable by a verb in `COMBINE`; a scatter has indices and rows as operands."""

    verb: str
    operands: tuple[Any, ...]

    def applied_to(self, value: Any) -> Any:
        """Returns the new value."""
        return COMBINE[self.verb](value, *self.operands)
