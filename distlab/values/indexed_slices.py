"""Some rows of a larger array, as the gradient of a lookup has them."""

from __future__ import annotations

from typing import Any, final

import jax
import numpy as np

from distlab.errors import ValueShapeError


@final
@jax.tree_util.register_pytree_node_class
class IndexedSlices:
    """Rows of a larger array, by their indices (`tf.IndexedSlices`).

    `Variable.scatter_add` and its like assign them. Replicas' slices are reduced by
    joining them, so a row that occurs twice is added twice.

    Args:
      values: The rows, `[rows, ...]`.
      indices: The index of each row in the larger array.
      dense_shape: The shape of the larger array; optional, for your own code.

    Raises:
      ValueShapeError: There are more or fewer indices than rows, or one is no whole number.

    Attributes:
      values: The rows.
      indices: The index of each row.
      dense_shape: The shape of the larger array, or None.

    Example:
      >>> import distlab as dl
      >>> table = dl.Variable([0.0, 0.0, 0.0])
      >>> table.scatter_add(dl.IndexedSlices([1.0, 5.0], [0, 2])).numpy().tolist()
      [1.0, 0.0, 5.0]
    """

    __slots__ = ("__weakref__", "dense_shape", "indices", "values")

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None) -> None:
        _check_indices(values, indices)
        self.values = values
        self.indices = indices
        self.dense_shape = dense_shape

    def tree_flatten(self) -> tuple[tuple[Any, Any], Any]:
        """Returns the rows and their indices as children."""
        shape = self.dense_shape
        return (self.values, self.indices), None if shape is None else tuple(shape)

    @classmethod
    def tree_unflatten(cls, dense_shape: Any, children: tuple[Any, Any]) -> IndexedSlices:
        """Returns slices of the same larger shape with other rows."""
        # Unchecked: JAX builds its trees of any objects.
        slices = cls.__new__(cls)
        (slices.values, slices.indices), slices.dense_shape = children, dense_shape
        return slices

    def __repr__(self) -> str:
        """Shows the rows and their indices."""
        return f"IndexedSlices(values={self.values!r:.200}, indices={self.indices!r:.200})"


def require_rows(values: Any, indices: Any, verb: str) -> None:
    """Checks that slices have an index for each row."""
    if not indices.ndim or not _have_indices(values, indices):
        raise ValueShapeError(_refusal(f"IndexedSlices of {verb}", values, indices))


def _check_indices(values: Any, indices: Any) -> None:
    rows, numbers = _as_known(values), _as_known(indices)
    # Distributed values and objects that stand for arrays are checked by the verbs.
    if rows is not None and numbers is not None and not _have_indices(rows, numbers):
        raise ValueShapeError(_refusal("IndexedSlices", rows, numbers))


def _as_known(value: Any) -> Any:
    """Returns an array, or numbers as one; None for anything else."""
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return value
    if not isinstance(value, list | tuple | int | float):
        return None
    try:
        array = np.asarray(value)
    except Exception:  # noqa: BLE001 - a list of values that are being traced, say
        return None
    return array if array.size else array.astype(int)  # which NumPy takes for floats


def _have_indices(values: Any, indices: Any) -> bool:
    whole = jax.numpy.issubdtype(indices.dtype, jax.numpy.integer)
    return bool(whole) and values.shape[: indices.ndim] == indices.shape


def _refusal(what: str, values: Any, indices: Any) -> str:
    return (
        f"{what} need a whole number as the index of each row, got rows {values.dtype}"
        f"{list(values.shape)} at indices {indices.dtype}{list(indices.shape)}. Pass indices of "
        "the shape [rows]."
    )


def is_slices(value: Any) -> bool:
    """Returns whether a node of a nest is `IndexedSlices`, which are reduced as a whole."""
    return isinstance(value, IndexedSlices)
