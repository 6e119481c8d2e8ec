"""Descriptions of the leaves of a checkpoint."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A leaf, without the numbers of its array.

    Of kind `value` it has one array for all replicas, `rows` one of shape `(replicas, ...)`. `key`
    is the random generator of keys, `checksum` the CRC-32 of a stored array, None in old ones.
    """

    kind: Literal["value", "rows", "python", "position", "generator"]
    shape: tuple[int, ...] = ()
    dtype: str = ""
    key: str = ""
    shapes: tuple[tuple[int, ...], ...] | None = None
    value: Any = None
    checksum: int | None = None

    @property
    def has_array(self) -> bool:
        """True if it has an array."""
        return self.kind in ("value", "rows")

    @property
    def stored(self) -> bool:
        """True if a file holds its array; Orbax writes none without elements."""
        return self.has_array and 0 not in self.shape

    def __str__(self) -> str:
        """Describes the leaf for messages."""
        if not self.has_array:
            return {"python": type(self.value).__name__}.get(self.kind, f"the {self.kind}")
        if self.kind == "rows":
            return f"{self.shape[0]} x {self.dtype}{list(self.shape[1:])}"
        return f"{self.key and self.key + ' keys as '}{self.dtype}{list(self.shape)}"


class Saved(NamedTuple):
    """A leaf, as it is written, with its array, which nobody changes."""

    entry: Entry
    array: np.ndarray | None = None
