"""The verbs of `tf.Variable` for everything that is assigned like a variable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self, cast

import jax
import numpy as np

from distlab.values.operators import ArrayOperators


def _of_rows(kind: str, does: str) -> Callable[..., Any]:
    """Returns a verb that combines rows with the present ones."""

    def scatter(self: Any, sparse_delta: Any, use_locking: bool = False, name: Any = None) -> Any:
        del use_locking, name
        return self._scatter(kind, sparse_delta)

    scatter.__name__ = f"scatter_{kind}"
    scatter.__qualname__ = f"VariableVerbs.scatter_{kind}"
    scatter.__doc__ = does
    return scatter


def _of_elements(kind: str, does: str) -> Callable[..., Any]:
    """Returns a verb that combines elements or slices with the present ones."""

    def scatter_nd(self: Any, indices: Any, updates: Any, name: Any = None) -> Any:
        del name
        return self._scatter_nd(kind, indices, updates)

    scatter_nd.__name__ = f"scatter_nd_{kind}"
    scatter_nd.__qualname__ = f"VariableVerbs.scatter_nd_{kind}"
    scatter_nd.__doc__ = does
    return scatter_nd


class VariableVerbs(ArrayOperators, ABC):
    """Base class of variables, their copies and variables in parts.

    An index outside of the variable is an `InvalidArgumentError`. In a compiled function the
    numbers of computed indices are not known: there the row is left out, as on TensorFlow's GPUs.
    """

    __slots__ = ()

    def read_value(self) -> jax.Array:
        """Returns `value()` (TensorFlow's other name for it)."""
        return self.value()

    def numpy(self) -> np.ndarray:
        """Waits for the value and returns it as a NumPy array."""
        return self.__array__()

    def assign(
        self, value: Any, use_locking: bool = False, name: Any = None, read_value: bool = True
    ) -> Self:
        """Assigns a new value and returns this variable.

        Args:
          value: An array-like of this variable's shape and dtype. Of a per-replica value each
            copy is assigned its component.
          use_locking: Ignored: an assignment is never half done.
          name: Ignored; accepted for compatibility with TensorFlow.
          read_value: False returns None, as in TensorFlow.

        Raises:
          ValueShapeError: The shape or dtype differs, or replicas assign values that the
            variable's aggregation can't reduce, such as the SUM of one number for all.
          ContextError: The call is inside another strategy's scope or `run`, or inside a
            user's own `jax.jit`.

        Example:
          >>> import distlab as dl
          >>> v = dl.Variable([1.0, 2.0])
          >>> v.assign([5.0, 6.0]).numpy().tolist()
          [5.0, 6.0]
        """
        del use_locking, name
        return self._assigned("assign", value, read_value)

    def assign_add(
        self, value: Any, use_locking: bool = False, name: Any = None, read_value: bool = True
    ) -> Self:
        """Adds to the value and returns this variable; takes and raises what `assign` does.

        Example:
          >>> import distlab as dl
          >>> float(dl.Variable(1.0).assign_add(2.0))
          3.0
        """
        del use_locking, name
        return self._assigned("assign_add", value, read_value)

    def assign_sub(
        self, value: Any, use_locking: bool = False, name: Any = None, read_value: bool = True
    ) -> Self:
        """Subtracts from the value and returns this variable; takes and raises what `assign` does.

        Example:
          >>> import distlab as dl
          >>> float(dl.Variable(1.0).assign_sub(0.25))
          0.75
        """
        del use_locking, name
        return self._assigned("assign_sub", value, read_value)

    def _assigned(self, verb: str, value: Any, read_value: bool) -> Self:
        updated = self._update(value, verb)
        return updated if read_value else cast(Self, None)

    @abstractmethod
    def _update(self, operand: Any, verb: str) -> Self:
        """Changes the value by a verb of `operations.COMBINE`, and returns this variable."""

    @abstractmethod
    def _scatter(self, kind: str, slices: Any) -> Self:
        """Combines rows with the present ones, and returns this variable."""

    @abstractmethod
    def _scatter_nd(self, kind: str, indices: Any, updates: Any) -> Self:
        """Combines elements or rows with the present ones, and returns this variable."""

    def scatter_add(self, sparse_delta: Any, use_locking: bool = False, name: Any = None) -> Self:
        """Adds rows to those with their indices, as `tf.Variable.scatter_add`.

        In a replica function, the aggregation SUM adds the rows of all replicas, MEAN adds them
        divided by the number of replicas, ONLY_FIRST_REPLICA adds those of the first replica,
        and NONE adds a replica's rows to its own copy.

        Args:
          sparse_delta: The `IndexedSlices`.
          use_locking: Ignored: an assignment is never half done.
          name: Ignored; accepted for compatibility with TensorFlow.

        Raises:
          ArgumentTypeError: `sparse_delta` is not `IndexedSlices`.
          ValueShapeError: The rows do not fit the variable.
          InvalidArgumentError: An index is outside of the variable.
          UnsupportedError: The variable is ON_READ, which TensorFlow does not support either.

        Example:
          >>> import distlab as dl
          >>> v = dl.Variable([1.0, 2.0, 3.0])
          >>> v.scatter_add(dl.IndexedSlices([10.0, 10.0], [0, 2])).numpy().tolist()
          [11.0, 2.0, 13.0]
        """
        del use_locking, name
        return self._scatter("add", sparse_delta)

    scatter_sub = _of_rows("sub", "Subtracts rows; see `scatter_add`.")
    scatter_mul = _of_rows("mul", "Multiplies by rows; see `scatter_add`.")
    scatter_div = _of_rows("div", "Divides by rows; see `scatter_add`.")
    scatter_min = _of_rows("min", "Takes the minima with rows; see `scatter_update`.")
    scatter_max = _of_rows("max", "Takes the maxima with rows; see `scatter_update`.")

    def scatter_update(
        self, sparse_delta: Any, use_locking: bool = False, name: Any = None
    ) -> Self:
        """Replaces rows, as `tf.Variable.scatter_update`.

        Args:
          sparse_delta: The `IndexedSlices`.
          use_locking: Ignored: an assignment is never half done.
          name: Ignored; accepted for compatibility with TensorFlow.

        Raises:
          UnsupportedError: The variable is mirrored with the aggregation SUM or MEAN, or ON_READ,
            which TensorFlow does not support either.

        Example:
          >>> import distlab as dl
          >>> v = dl.Variable([1.0, 2.0, 3.0])
          >>> v.scatter_update(dl.IndexedSlices([10.0], [1])).numpy().tolist()
          [1.0, 10.0, 3.0]
        """
        del use_locking, name
        return self._scatter("update", sparse_delta)

    def scatter_nd_add(self, indices: Any, updates: Any, name: Any = None) -> Self:
        """Adds to elements or slices, as `tf.Variable.scatter_nd_add`.

        Args:
          indices: `[..., depth]`: each names an element, or a slice when `depth` is below the
            variable's rank.
          updates: `[..., slice]`: what to add to each.
          name: Ignored; accepted for compatibility with TensorFlow.

        Raises:
          UnsupportedError: The variable has copies on several replicas, for which TensorFlow does
            not support it either.
          ValueShapeError: The shapes do not fit the variable.
          InvalidArgumentError: An index is outside of the variable.

        Example:
          >>> import distlab as dl
          >>> v = dl.Variable([[1.0, 2.0], [3.0, 4.0]])
          >>> v.scatter_nd_add([[0, 1], [1, 0]], [10.0, 20.0]).numpy().tolist()
          [[1.0, 12.0], [23.0, 4.0]]
        """
        del name
        return self._scatter_nd("add", indices, updates)

    scatter_nd_sub = _of_elements("sub", "Subtracts from elements or slices; see `scatter_nd_add`.")
    scatter_nd_update = _of_elements("update", "Replaces elements or slices; see `scatter_nd_add`.")
    scatter_nd_min = _of_elements("min", "Takes minima with elements; see `scatter_nd_add`.")
    scatter_nd_max = _of_elements("max", "Takes maxima with elements; see `scatter_nd_add`.")
