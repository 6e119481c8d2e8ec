"""bucket_by_sequence_length: the buckets of lengths, and the batches of each."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distlab.data.plan.arguments import integer
from distlab.data.plan.nest import leaves, map_nest
from distlab.data.plan.plan import Node
from distlab.data.transforms.batch import Batch
from distlab.data.transforms.padded_batch import PaddedBatch, shapes_like
from distlab.errors import InvalidArgumentError, StructureError
from distlab.text.shown import shown

_VERB = "bucket_by_sequence_length"


class Buckets:
    """Buckets of lengths; see the verb for the arguments.

    Raises:
      InvalidArgumentError: Boundaries and batch sizes do not fit together.
    """

    def __init__(
        self,
        length_of: Callable[..., Any],
        boundaries: Sequence[int],
        batch_sizes: Sequence[int],
        padded_shapes: Any,
        padding_values: Any,
        *,
        to_boundary: bool,
        no_padding: bool,
        drop_remainder: bool,
    ) -> None:
        for name, given in ("bucket_boundaries", boundaries), ("bucket_batch_sizes", batch_sizes):
            if not isinstance(given, list | tuple | np.ndarray):
                raise InvalidArgumentError(
                    f"{name} of {_VERB} must be a list of integers, got a "
                    f"{type(given).__name__}: {shown(given)}. Write for example [10, 20]."
                )
        self._length_of = length_of
        self._boundaries = [integer(_VERB, "a boundary", each) for each in boundaries]
        self._sizes = [integer(_VERB, "a batch size", each, at_least=1) for each in batch_sizes]
        if sorted(set(self._boundaries)) != self._boundaries:
            raise InvalidArgumentError(
                f"bucket_boundaries of {_VERB} must ascend, got {self._boundaries}. "
                "Use sorted(set(...))."
            )
        if len(self._sizes) != len(self._boundaries) + 1:
            raise InvalidArgumentError(
                f"bucket_batch_sizes of {_VERB} must have one size more than there are boundaries "
                f"({len(self._boundaries)}), got {shown(batch_sizes)}. Give a size "
                "for each bucket."
            )
        self._padded_shapes, self._padding_values = padded_shapes, padding_values
        self._to_boundary, self._no_padding = to_boundary, no_padding
        self._drop = drop_remainder

    def bucket_of(self, *parts: Any) -> int:
        """Returns the number of an element's bucket."""
        length = np.asarray(self._length_of(*parts))
        if length.size != 1 or length.dtype.kind not in "iu":
            raise StructureError(
                f"element_length_func of {_VERB} must return one integer, got {shown(length)}"
            )
        return bisect.bisect_right(self._boundaries, int(length.item()))

    def size_of(self, bucket: Any) -> int:
        """Returns the batch size of a bucket."""
        return self._sizes[int(bucket)]

    def batched(self, bucket: Any, window: Any) -> Node:
        """Returns the plan of a bucket's batch."""
        size, plan = self.size_of(bucket), window.plan
        if self._no_padding:
            return Batch(plan, size, self._drop)
        shapes = self._padded_shapes
        if self._to_boundary:
            shapes = self._bounded_shapes(int(bucket), plan)
        return PaddedBatch(plan, size, self._drop, shapes, self._padding_values)

    def _bounded_shapes(self, bucket: int, plan: Node) -> Any:
        """Returns the padded shapes with the bucket's longest length for unknown sizes."""
        if bucket == len(self._boundaries):
            raise InvalidArgumentError(
                f"With pad_to_bucket_boundary, elements of {_VERB} must be shorter than the last "
                f"boundary, {self._boundaries[-1] if bucket else None}, and one is not. Add a "
                "boundary, or filter such elements."
            )
        if self._padded_shapes is None and not plan.exact:
            raise InvalidArgumentError(
                f"With pad_to_bucket_boundary, {_VERB} has to know which dimensions vary, and the "
                "results of a function do not tell. Give padded_shapes, with None for those."
            )
        spec, longest = plan.spec, self._boundaries[bucket] - 1
        shapes = iter(
            [each.shape for each in leaves(spec)]
            if self._padded_shapes is None
            else shapes_like(spec, self._padded_shapes)
        )
        return map_nest(
            lambda _: [longest if size is None else size for size in next(shapes)], spec
        )
