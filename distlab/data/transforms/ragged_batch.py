"""ragged_batch: elements of different lengths as `distlab.io.Ragged`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.data.plan.engine import Element, Stream, stacked
from distlab.data.plan.nest import leaves, map_nest
from distlab.data.plan.plan import Opener, Reading, Unary
from distlab.data.plan.spec import TensorSpec, refuse_datasets
from distlab.data.transforms.batch import batch_count, joined_indices, require_alike, stack_leaf
from distlab.data.transforms.padded_batch import pad_leaf
from distlab.errors import InvalidArgumentError
from distlab.io._ragged import Ragged


@dataclass(frozen=True, eq=False)
class RaggedBatch(Unary):
    """Stacks `size` elements; components whose lengths may differ become a `Ragged`.

    Those are the ones of unknown first dimension, and where specs hold for the first
    element only, all that have a dimension.
    """

    size: int
    drop_remainder: bool

    @functools.cached_property
    def spec(self) -> Any:
        """The input's with a new first dimension, and pairs of specs for `Ragged` ones."""
        first = self.size if self.drop_remainder else None
        refuse_datasets("ragged_batch", self.input.spec)

        def batched(spec: TensorSpec) -> Any:
            if not self._varies(spec):
                return TensorSpec((first, *spec.shape), spec.dtype)
            dense = TensorSpec((first, None, *spec.shape[1:]), spec.dtype)
            return Ragged(dense, TensorSpec((first,), np.dtype(np.int64)))

        return map_nest(batched, self.input.spec)

    @property
    def cardinality(self) -> int:
        """The number of batches."""
        return batch_count(self.input.cardinality, self.size, drop_remainder=self.drop_remainder)

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the batches."""
        stream = open_input(self.input, reading)
        return stacked(stream, self.size, self._stack, drop_remainder=self.drop_remainder)

    def _varies(self, spec: TensorSpec) -> bool:
        return spec.rank > 0 and (spec.shape[0] is None or not self.input.exact)

    def _stack(self, elements: Sequence[Element]) -> Element:
        specs = leaves(self.input.spec)

        def stack(*parts: Any) -> Any:
            if not self._varies(next(specs)):
                return stack_leaf(*parts)
            require_alike("ragged_batch", parts)
            shapes = [part.shape for part in parts]
            if len({shape[1:] for shape in shapes}) > 1:
                raise InvalidArgumentError(
                    "Only the first dimension may differ in ragged_batch, got shapes "
                    f"{sorted(set(shapes))}. Use padded_batch, which pads all dimensions."
                )
            lengths = np.array([len(part) for part in parts], np.int64)
            lengths.flags.writeable = False
            return Ragged(pad_leaf(*parts), lengths)

        value = map_nest(stack, *(element.value for element in elements))
        return Element(value, joined_indices(elements))
