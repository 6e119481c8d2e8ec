"""Ragged: rows of different lengths, padded to one array."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Ragged(NamedTuple):
    """Rows of different lengths: what a `VarLenFeature` becomes.

    TensorFlow has a SparseTensor here. A `Ragged` is a tuple of two arrays that can be
    batched by `Dataset.padded_batch`, divided over replicas, and used in a compiled
    step. The members of a SparseTensor are computed from them, on the host.

    Attributes:
      dense: The rows, padded with 0 or empty strings: shape `(..., longest)`.
      lengths: The number of values in each row, int64: shape `(...)`.

    Example:
      >>> import distlab as dl
      >>> records = [dl.io.serialize_example({"ids": ids}) for ids in ([7, 8], [9])]
      >>> ids = dl.io.parse_example(records, {"ids": dl.io.VarLenFeature("int64")})["ids"]
      >>> ids.dense.sum(axis=1), ids.lengths
      (array([15,  9]), array([2, 1]))
      >>> ids.values
      array([7, 8, 9])
      >>> ids.to_list()
      [[7, 8], [9]]
    """

    dense: Any
    lengths: Any

    @property
    def mask(self) -> Any:
        """True where `dense` holds a value, False where it is padding.

        Example:
          >>> import distlab as dl
          >>> record = dl.io.serialize_example({"ids": [7]})
          >>> longer = dl.io.serialize_example({"ids": [7, 8]})
          >>> features = {"ids": dl.io.VarLenFeature("int64")}
          >>> dl.io.parse_example([record, longer], features)["ids"].mask
          array([[ True, False],
                 [ True,  True]])
        """
        return np.arange(self.dense.shape[-1]) < self.lengths[..., None]

    @property
    def values(self) -> np.ndarray:
        """All values, in order; the `values` of TensorFlow's SparseTensor."""
        return np.asarray(self.dense)[self._host_mask()]

    @property
    def indices(self) -> np.ndarray:
        """The position of each value: int64, shape `(values, rank)`."""
        return np.argwhere(self._host_mask())

    @property
    def dense_shape(self) -> np.ndarray:
        """The shape of `dense`: int64."""
        return np.asarray(self.dense.shape, np.int64)

    def to_dense(self, default_value: Any = None) -> np.ndarray:
        """Returns the rows padded with a value, as `tf.sparse.to_dense` does.

        Args:
          default_value: The padding; None means 0 or the empty string.
        """
        dense = np.array(self.dense)
        if default_value is None:
            return dense
        if isinstance(default_value, str):
            default_value = default_value.encode()
        dense[~self._host_mask()] = default_value
        return dense

    def to_list(self) -> list[Any]:
        """Returns the values as nested lists."""
        dense, lengths = np.asarray(self.dense), np.asarray(self.lengths)
        if not lengths.ndim:
            return list(dense[:lengths].tolist())
        return [Ragged(*row).to_list() for row in zip(dense, lengths, strict=True)]

    def _host_mask(self) -> np.ndarray:
        return np.arange(self.dense.shape[-1]) < np.asarray(self.lengths)[..., None]
