"""The choice of the variables that are divided over the replicas, and of the axis."""

from __future__ import annotations

from math import prod
from typing import Final, final

import jax
import jax.numpy as jnp

from distlab.devices.layouts import NewVariable
from distlab.errors import ArgumentValueError
from distlab.text.counts import is_positive_count
from distlab.text.shown import shown

LEAST_BYTES: Final = 1 << 12
"""The least size with `shard_variables=True`: below, a collective costs more than a copy saves."""


@final
class DividedVariables:
    """The variables of a strategy that are divided over its replicas."""

    def __init__(self, shard_variables: bool | int) -> None:
        if not isinstance(shard_variables, bool) and not is_positive_count(shard_variables):
            raise ArgumentValueError(
                "shard_variables must be True, False or the least number of bytes of a variable "
                f"that is divided, at least 1, got {shown(shard_variables)}. True divides those of "
                f"at least {LEAST_BYTES}."
            )
        self.least: int | None = None
        if shard_variables:
            self.least = LEAST_BYTES if shard_variables is True else int(shard_variables)

    def axis(self, of: NewVariable, replicas: int) -> int | None:
        """Returns the first axis that the replicas divide evenly; None for a whole variable."""
        if self.least is None or replicas == 1 or prod(of.shape) * of.dtype.itemsize < self.least:
            return None
        if jnp.issubdtype(of.dtype, jax.dtypes.extended):
            return None  # random keys
        return next((n for n, size in enumerate(of.shape) if size % replicas == 0), None)
