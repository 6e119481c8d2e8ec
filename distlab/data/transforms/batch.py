"""Elements as rows: batch, unbatch, rebatch, and the division over replicas."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from distlab.data.plan.engine import Element, Reader, Stacked, State
from distlab.data.plan.memory import aligned_empty
from distlab.data.plan.nest import is_leaf, leaves, map_nest, refuse_structures
from distlab.data.plan.plan import UNKNOWN_CARDINALITY, Opener, Order, Reading
from distlab.data.plan.positions import PositionReader
from distlab.data.plan.rows import join, row, row_count, rows
from distlab.data.plan.spec import batch_spec, refuse_dataset, row_spec
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

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the batches."""
        reader = open_input(self.input, reading)
        if isinstance(reader, PositionReader) and reader.of_positions:
            return reader.batched(self.size, drop_remainder=self.drop_remainder)
        return Stacked(reader, self.size, stack, drop_remainder=self.drop_remainder)


@dataclass(frozen=True, eq=False)
class Unbatch(Order):
    """The rows of each element."""

    @functools.cached_property
    def spec(self) -> Any:
        """The specs of a row."""
        return row_spec(self.input.spec)

    @property
    def cardinality(self) -> int:
        """The number of rows, known if the first dimension is."""
        size = self.input.cardinality
        if size < 0:
            return size
        counts = {spec.shape[0] if spec.rank else None for spec in leaves(self.input.spec)}
        count = counts.pop()
        return UNKNOWN_CARDINALITY if counts or count is None else size * count

    def rank(self, rank: int) -> int | None:
        """One less; rows of the source's own elements have no positions."""
        return rank - 1 if rank else None

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the rows."""
        return _UnbatchReader(open_input(self.input, reading))


@dataclass(frozen=True, eq=False)
class Rebatch(Order):
    """Divides the rows of all elements, in order, into batches of `sizes`, in turn."""

    sizes: tuple[int, ...]
    drop_remainder: bool

    @functools.cached_property
    def spec(self) -> Any:
        """The input's, with a first dimension that is known if all batches share it."""
        specs, size = self.input.spec, self.sizes[0]
        whole = len(set(self.sizes)) == 1 and (self.drop_remainder or self._divides(size, specs))
        return batch_spec(row_spec(specs), size if whole else None)

    @property
    def cardinality(self) -> int:
        """Unknown, because the input's batches may have any sizes."""
        return UNKNOWN_CARDINALITY

    def _divides(self, size: int, specs: Any) -> bool:
        """Returns whether each of the input's batches has a multiple of `size` rows."""
        counts = {spec.shape[0] for spec in leaves(specs)}
        return self.input.exact and all(count and size and count % size == 0 for count in counts)

    def rank(self, rank: int) -> int | None:
        """The same; rows of the source's own elements have no positions."""
        return rank or None

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the new batches."""
        return _RebatchReader(open_input(self.input, reading), self.sizes, drop=self.drop_remainder)


@dataclass(frozen=True, eq=False)
class Divide(Order):
    """Cuts each element's n rows into `parts` of ceil(n / parts), until none are left."""

    parts: int

    @property
    def spec(self) -> Any:
        """The specs of a part."""
        return batch_spec(row_spec(self.input.spec), None)

    @property
    def cardinality(self) -> int:
        """The input's, times the number of parts."""
        size = self.input.cardinality
        return size if size < 0 else size * self.parts

    def rank(self, rank: int) -> int | None:
        """The same; rows of the source's own elements have no positions."""
        return rank or None

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the parts."""
        return _DivideReader(open_input(self.input, reading), self.parts)


class _PartReader(Reader):
    """Parts of an element at a time; the position is before it, with the next part's number."""

    def __init__(self, parent: Reader) -> None:
        super().__init__(parent)
        self._before = parent.get_state()
        self._element: Element | None = None
        self._next = self._count = 0

    def get_state(self) -> State:
        return {"before": self._before, "next": self._next}

    def set_state(self, state: State) -> None:
        self._before = state["before"]
        self._parent.set_state(self._before)
        self._element = None
        self._count = self._next = 0
        if state["next"] and self._load():
            self._next = state["next"]

    def _load(self) -> bool:
        """Reads the next element; returns whether there was one."""
        before = self._parent.get_state()
        element = next(self._parent, None)
        if element is None:
            return False
        self._before, self._element = before, element
        self._count, self._next = row_count(element), 0
        return True

    def _loaded(self) -> Element:
        assert self._element is not None
        return self._element


class _UnbatchReader(_PartReader):
    def __next__(self) -> Element:
        while self._next >= self._count:
            if not self._load():
                raise StopIteration
        self._next += 1
        return row(self._loaded(), self._next - 1)


class _DivideReader(_PartReader):
    def __init__(self, parent: Reader, parts: int) -> None:
        super().__init__(parent)
        self._parts = parts

    def __next__(self) -> Element:
        if (self._element is None or self._next == self._parts) and not self._load():
            raise StopIteration
        share = -(-self._count // self._parts)
        start = min(self._count, share * self._next)
        self._next += 1
        return rows(self._loaded(), start, min(self._count, start + share))


class _RebatchReader(_PartReader):
    def __init__(self, parent: Reader, sizes: tuple[int, ...], *, drop: bool) -> None:
        super().__init__(parent)
        self._sizes, self._drop = sizes, drop
        self._turn = 0

    def __next__(self) -> Element:
        size = self._sizes[self._turn % len(self._sizes)]
        if size == 0:
            if self._element is None and not self._load():
                raise StopIteration
            batch = rows(self._loaded(), 0, 0)
        else:
            parts = self._take(size)
            taken = sum(row_count(part) for part in parts)
            if not taken or (self._drop and taken < size):
                raise StopIteration
            batch = join(parts)
        self._turn += 1
        return batch

    def get_state(self) -> State:
        return {"turn": self._turn, **super().get_state()}

    def set_state(self, state: State) -> None:
        self._turn = state["turn"]
        super().set_state(state)

    def _take(self, size: int) -> list[Element]:
        """Returns parts of elements with `size` rows together, fewer only at the end."""
        parts: list[Element] = []
        while size > 0 and (self._next < self._count or self._load()):
            stop = min(self._next + size, self._count)
            parts.append(rows(self._loaded(), self._next, stop))
            size -= stop - self._next
            self._next = stop
        return parts


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
