"""Some rows of a larger array, as the gradient of a lookup has them."""

from __future__ import annotations

from typing import Any, final

import jax


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


def is_slices(value: Any) -> bool:
    """Returns whether a node of a nest is `IndexedSlices`, which are reduced as a whole."""
    return isinstance(value, IndexedSlices)
