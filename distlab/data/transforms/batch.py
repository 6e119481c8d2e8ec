"""batch: several elements stacked into one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from distlab.data.plan.engine import Element, Stream, stacked
from distlab.data.plan.memory import aligned_empty
from distlab.data.plan.nest import is_leaf, map_nest, refuse_structures
from distlab.data.plan.plan import Opener, Order, Reading
from distlab.data.plan.position_streams import PositionStream
from distlab.data.plan.spec import batch_spec, refuse_dataset
from distlab.errors import InvalidArgumentError, ValueShapeError

_STRING: Final = np.dtype(object)


@dataclass(frozen=True, eq=False)
class Batch(Order):
    """Stacks `size` elements along a new first dimension."""

    size: int
    drop_remainder: bool

    @functools.cached_property
    def spec(self) -> Any:
        """The input's, with a new first dimension: None unless remainders are dropped."""
        return batch_spec(self.input.spec, self.size if self.drop_remainder else None)

    @property
    def cardinality(self) -> int:
        """The number of batches."""
        return batch_count(self.input.cardinality, self.size, drop_remainder=self.drop_remainder)

    def rank(self, rank: int) -> int:
        """One more."""
        return rank + 1

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the batches."""
        stream = open_input(self.input, reading)
        if isinstance(stream, PositionStream):
            return stream.batched(self.size, drop_remainder=self.drop_remainder)
        return stacked(stream, self.size, stack, drop_remainder=self.drop_remainder)


def batch_count(elements: int, size: int, *, drop_remainder: bool) -> int:
    """Returns the number of batches of `size` elements, a cardinality as theirs."""
    if elements < 0:
        return elements
    return elements // size if drop_remainder else -(-elements // size)


def stack(elements: Sequence[Element]) -> Element:
    """Stacks elements into one."""
    value = map_nest(stack_leaf, *(element.value for element in elements))
    return Element(value, joined_indices(elements))


def joined_indices(elements: Sequence[Element]) -> Any:
    """Returns the concatenated indices of elements, None if an element has none."""
    parts = [element.indices for element in elements if element.indices is not None]
    return np.concatenate(parts) if len(parts) == len(elements) else None


def stack_leaf(*values: Any) -> Any:
    """Stacks the values of one component."""
    # A state of scan that begins as a Python number is int32, and may go on as int64.
    require_alike("batch", values, of_one_dtype=False)
    stacked = _stack_values(*values)
    stacked.flags.writeable = False
    return stacked


def require_alike(verb: str, parts: Sequence[Any], *, of_one_dtype: bool = True) -> None:
    """Checks that the values of one component can be stacked."""
    for part in {type(part): part for part in parts}.values():
        if not is_leaf(part):
            refuse_structures(parts[0], part)
        refuse_dataset(verb, part)
    dtypes = {_STRING if isinstance(part, bytes) else part.dtype for part in parts}
    if len(dtypes) > 1 and (of_one_dtype or len({dtype.kind for dtype in dtypes}) > 1):
        names = sorted("string" if dtype == _STRING else str(dtype) for dtype in dtypes)
        raise ValueShapeError(
            f"Elements of a batch must have one dtype, got {', '.join(names)}. Convert them, for "
            "example in map with astype."
        )


def _stack_values(*values: Any) -> np.ndarray[Any, Any]:
    if all(isinstance(value, bytes) for value in values):
        stacked = np.empty(len(values), dtype=object)
        stacked[:] = values
        return stacked
    if len({np.shape(value) for value in values}) > 1:
        raise InvalidArgumentError(
            "Elements of a batch must have one shape, got "
            f"{sorted({np.shape(value) for value in values})}. Pad them by padded_batch."
        )
    if len({value.dtype for value in values}) > 1:
        return np.stack(values)
    shape, dtype = np.shape(values[0]), values[0].dtype
    out = None if dtype.kind == "O" else aligned_empty((len(values), *shape), dtype)
    return np.stack(values, out=out)
