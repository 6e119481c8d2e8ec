"""Samples of the batches for the pages: previews of examples, and replicas with equal ones."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from typing import Any, Final, Literal, final

import numpy as np

from distlab import events
from distlab.events import sink
from distlab.input.batches import Parts

_MOST_EXAMPLES: Final = 20_000
_MOST_BYTES: Final = 8 << 20
_SMALLEST_SIDE: Final = 4
_LARGEST_SIDE: Final = 32
_MOST_NUMBERS: Final = 8
_BATCHES_WITHOUT_POSITIONS: Final = 50
_FIRST_BATCHES: Final = 4
_EVERY: Final = 64


@final
class Previewer:
    """Emits a preview of each example of one dataset, once."""

    def __init__(self, dataset: int) -> None:
        self._dataset = dataset
        self._seen: set[int] = set()
        self._room = _MOST_BYTES
        self._range: tuple[float, float] | None = None

    def show(
        self,
        recorder: sink.Recorder,
        columns: Sequence[Parts],
        indices: np.ndarray | None,
        epoch: int,
        batch: int,
    ) -> None:
        """Emits previews of the examples in a batch that have none yet."""
        if not columns or len(self._seen) >= _MOST_EXAMPLES or not np.ndim(columns[0][0]):
            return
        examples = sum(len(part) for part in columns[0])
        if indices is None:
            if epoch or batch >= _BATCHES_WITHOUT_POSITIONS:
                return
            rows = np.arange(min(examples, _MOST_EXAMPLES))
            positions = rows
        else:
            numbers = indices.tolist()
            if self._seen.issuperset(numbers):  # from the second epoch on
                return
            rows = np.array([i for i, n in enumerate(numbers) if n not in self._seen], int)
            positions = indices[rows] if len(rows) else rows
        if not len(rows) or len(rows) > examples:
            return
        first = _rows_of(columns[0], rows)
        if first is None:
            return
        form, data = self._picture(first)
        self._room -= data.nbytes
        if self._room < 0:
            return
        if indices is not None:
            self._seen.update(positions.tolist())
        recorder.emit(
            events.Preview(
                time_ns=time.monotonic_ns(),
                dataset=self._dataset,
                batch=None if indices is not None else batch,
                epoch=epoch,
                indices=np.ascontiguousarray(positions, "<i8").tobytes(),
                form=form,
                shape=list(data.shape[1:]),
                data=data.tobytes(),
                labels=_labels(columns[1:], rows),
            )
        )

    def _picture(self, examples: np.ndarray) -> tuple[Literal["image", "numbers"], np.ndarray]:
        """Returns images as uint8 pixels, and other examples as their first numbers."""
        shape = examples.shape[1:]
        image = len(shape) == 2 or (len(shape) == 3 and shape[-1] in (1, 3))
        if image and min(shape[:2]) >= _SMALLEST_SIDE and examples.dtype.kind in "uif":
            if len(shape) == 3 and shape[-1] == 1:
                examples = examples[..., 0]
            rows, columns = (-(-side // _LARGEST_SIDE) for side in shape[:2])
            return "image", self._pixels(examples[:, ::rows, ::columns])
        flat = examples.reshape(len(examples), int(np.prod(shape)))[:, :_MOST_NUMBERS]
        if flat.dtype.kind not in "biuf":
            flat = np.zeros((len(examples), 0))
        return "numbers", np.ascontiguousarray(flat, "<f4")

    def _pixels(self, images: np.ndarray) -> np.ndarray:
        """Maps values to brightness, by the range of the first batch."""
        if images.dtype == np.uint8:
            return np.ascontiguousarray(images)
        values = np.nan_to_num(images.astype(np.float32))
        if self._range is None:
            self._range = float(values.min(initial=0)), float(values.max(initial=0))
        low, high = self._range
        scaled = (values - low) * (255 / ((high - low) or 1))
        return np.clip(scaled, 0, 255).astype(np.uint8)


def _labels(columns: Sequence[Parts], rows: np.ndarray) -> list[str]:
    """Returns the first component with one whole number for each example, as labels."""
    for parts in columns:
        if np.ndim(parts[0]) == 1 and np.asarray(parts[0]).dtype.kind in "iub":
            chosen = _rows_of(parts, rows)
            return [] if chosen is None else [str(n) for n in chosen.tolist()]
    return []


def _rows_of(parts: Parts, rows: np.ndarray) -> np.ndarray | None:
    """Returns rows of the parts' concatenation; None when the rows have different shapes."""
    if isinstance(parts, np.ndarray):
        return parts.reshape(parts.shape[0] * parts.shape[1], *parts.shape[2:])[rows]
    arrays = [np.asarray(part) for part in parts]
    if not arrays[0].ndim or len({array.shape[1:] for array in arrays}) > 1:
        return None
    stops = np.cumsum([len(array) for array in arrays])
    bounds = np.searchsorted(rows, [0, *stops.tolist()])
    chosen = [
        array[rows[first:last] - (stop - len(array))]
        for array, stop, first, last in zip(arrays, stops, bounds, bounds[1:], strict=False)
    ]
    return np.concatenate(chosen)


@final
class Repeats:
    """A sample of an iterator's batches, compared between replicas."""

    def __init__(self) -> None:
        self._last = -1

    def count(self, columns: Sequence[Parts], sizes: list[int], batch: int) -> int:
        """Returns how many replicas received what the first one did.

        Data that is made up, the same in each row or in each batch, repeats by design: 0.
        """
        if (batch >= _FIRST_BATCHES and batch % _EVERY) or len(sizes) < 2 or sizes[0] < 2:
            return 0
        arrays = [column for column in columns if np.ndim(column[0])]
        first = [np.asarray(column[0]) for column in arrays]
        same = [
            replica
            for replica in range(1, len(sizes))
            if sizes[replica] == sizes[0]
            and all(_equal(mine, c[replica]) for mine, c in zip(first, arrays, strict=True))
        ]
        if not same or all((one == one[:1]).all() for one in first):
            return 0
        before, self._last = self._last, zlib.crc32(first[0].tobytes())
        return 0 if before == self._last else len(same)


def _equal(mine: np.ndarray, part: Any) -> bool:
    theirs = np.asarray(part)
    return np.array_equal(mine[:1], theirs[:1]) and np.array_equal(mine, theirs)
