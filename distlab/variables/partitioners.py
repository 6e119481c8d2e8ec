"""Into how many parts a variable is divided: `tf.distribute.experimental.partitioners`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from distlab.errors import ArgumentValueError
from distlab.text.shown import shown


class Partitioner:
    """The base of partitioners, for your own.

    A `ParameterServerStrategy` calls its partitioner for each new variable with at least one row.

    Example:
      >>> import distlab as dl
      >>> class LargeTables(dl.experimental.partitioners.Partitioner):
      ...     def __call__(self, shape, dtype, axis=0):
      ...         return [4 if shape[axis] >= 1000 else 1] + [1] * (len(shape) - 1)
      >>> LargeTables()((5000, 8), "float32")
      [4, 1]
    """

    def __call__(self, shape: Sequence[int], dtype: Any, axis: int = 0) -> list[int]:
        """Returns the number of parts along each axis.

        Args:
          shape: The shape of the variable.
          dtype: Its dtype.
          axis: The axis to divide; a `ParameterServerStrategy` divides the first one alone.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method __call__.")


@final
class FixedShardsPartitioner(Partitioner):
    """Partitioner into one number of parts, or one for each row if there are fewer.

    Args:
      num_shards: The number of parts.

    Raises:
      ArgumentValueError: `num_shards` is less than 1.

    Example:
      >>> import distlab as dl
      >>> dl.experimental.partitioners.FixedShardsPartitioner(2)((10, 3), "float32")
      [2, 1]
    """

    def __init__(self, num_shards: int) -> None:
        self._num_shards = _checked("num_shards", num_shards)

    def __call__(self, shape: Sequence[int], dtype: Any, axis: int = 0) -> list[int]:
        """Returns the number of parts along each axis."""
        del dtype
        return _along(shape, axis, min(self._num_shards, shape[axis]))


@final
class MinSizePartitioner(Partitioner):
    """Partitioner into as many parts as have `min_shard_bytes`, up to `max_shards`.

    Args:
      min_shard_bytes: The least bytes of a part; 256 KiB by default.
      max_shards: The most parts; 1 by default, which divides nothing.
      bytes_per_string: The bytes that one string counts.

    Raises:
      ArgumentValueError: An argument is less than 1.

    Example:
      >>> import distlab as dl
      >>> partitioner = dl.experimental.partitioners.MinSizePartitioner(4, max_shards=10)
      >>> partitioner((6, 1), "float32")
      [6, 1]
    """

    def __init__(
        self,
        min_shard_bytes: float = 256 << 10,
        max_shards: int = 1,
        bytes_per_string: float = 16,
    ) -> None:
        self._min_shard_bytes = _checked("min_shard_bytes", min_shard_bytes)
        self._max_shards = _checked("max_shards", max_shards)
        self._bytes_per_string = _checked("bytes_per_string", bytes_per_string)

    def __call__(self, shape: Sequence[int], dtype: Any, axis: int = 0) -> list[int]:
        """Returns the number of parts along each axis."""
        rows = shape[axis]
        size = math.prod(shape) * _element_bytes(dtype, self._bytes_per_string)
        wanted = math.ceil(size / self._min_shard_bytes)
        return _along(shape, axis, max(1, min(rows, self._max_shards, wanted)))


@final
class MaxSizePartitioner(Partitioner):
    """Partitioner into as few parts as have at most `max_shard_bytes`.

    Args:
      max_shard_bytes: The most bytes of a part; a single row may have more.
      max_shards: The most parts, which may have more bytes then; None or 0 for no limit.
      bytes_per_string: The bytes that one string counts.

    Raises:
      ArgumentValueError: An argument is less than 1.

    Example:
      >>> import distlab as dl
      >>> dl.experimental.partitioners.MaxSizePartitioner(4)((6, 1), "float32")
      [6, 1]
      >>> dl.experimental.partitioners.MaxSizePartitioner(4, max_shards=2)((6, 1), "float32")
      [2, 1]
    """

    def __init__(
        self,
        max_shard_bytes: float,
        max_shards: int | None = None,
        bytes_per_string: float = 16,
    ) -> None:
        self._max_shard_bytes = _checked("max_shard_bytes", max_shard_bytes)
        limit = 0 if max_shards is None else _checked("max_shards", max_shards, 0)
        self._max_shards = limit or math.inf
        self._bytes_per_string = _checked("bytes_per_string", bytes_per_string)

    def __call__(self, shape: Sequence[int], dtype: Any, axis: int = 0) -> list[int]:
        """Returns the number of parts along each axis."""
        rows = shape[axis]
        size = math.prod(shape) * _element_bytes(dtype, self._bytes_per_string)
        if not size:
            return _along(shape, axis, min(rows, 1))
        rows_of_a_part = max(1, math.floor(self._max_shard_bytes / (size / rows)))
        parts = math.ceil(rows / rows_of_a_part)
        return _along(shape, axis, int(min(parts, self._max_shards)))


def _along(shape: Sequence[int], axis: int, parts: int) -> list[int]:
    counts = [1] * len(shape)
    counts[axis] = parts
    return counts


def _element_bytes(dtype: Any, bytes_per_string: float) -> float:
    kind = np.dtype(dtype)
    return bytes_per_string if kind.kind in "OSU" else kind.itemsize


def _checked(name: str, value: Any, least: int = 1) -> Any:
    """Returns a number of parts or bytes."""
    if not least <= value < math.inf:
        raise ArgumentValueError(
            f"{name} must be at least {least} and finite, got {shown(value)}. Pass for example 1."
        )
    return value
