"""Pictures of some batches: for each replica its examples, side by side."""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from distlab.events import Event, Preview, Sharding, Step, Strategy
from distlab.folds import BatchDetail, Batches
from distlab.text.png import enlarge

_EVERY_NS: Final = 10_000_000_000
_MOST_DATASETS: Final = 8
_MOST_EXAMPLES: Final = 64
_CELL: Final = 8
"""Pixels of a number's side."""

Drawn: TypeAlias = tuple[Sharding, dict[str, npt.NDArray[np.uint8]]]
"""A batch, and a picture for each replica with examples."""


class BatchImages:
    """Draws the first and the first partial batch of eight datasets, then one every 10 s."""

    def __init__(self) -> None:
        self._batches = Batches()
        self._next_ns = 0
        self._datasets: set[int] = set()
        self._all_full: set[int] = set()
        self._waiting: dict[int, Sharding] = {}
        self._without: set[int] = set()

    def add(self, event: Event) -> list[Drawn]:
        """Adds an event; returns the batches that it completes, with their pictures.

        Previews come before the batch's step, with events of other threads between them.
        """
        match event:
            case Strategy():
                self._batches.add([event])
            case Preview():
                self._batches.add([event])
                self._without.discard(event.dataset)
            case Step():
                return self._take_drawn()
            case Sharding():
                done = self._take(event.dataset)
                if self._chooses(event):
                    if len(self._waiting) == _MOST_DATASETS:
                        done += self._take(next(iter(self._waiting)))
                    self._waiting[event.dataset] = event
                return done
        return []

    def take(self) -> list[Drawn]:
        """Returns the batches that wait for previews, with the pictures that they have."""
        return [drawn for dataset in list(self._waiting) for drawn in self._take(dataset)]

    def _take(self, dataset: int) -> list[Drawn]:
        """Returns a dataset's batch, if one waits and has pictures; none waits afterwards."""
        self._without.discard(dataset)
        batch = self._waiting.pop(dataset, None)
        return [] if batch is None else self._drawn(batch)

    def _take_drawn(self) -> list[Drawn]:
        """Returns the batches that have pictures; the others wait on."""
        done: list[Drawn] = []
        for dataset in [one for one in self._waiting if one not in self._without]:
            if drawn := self._drawn(self._waiting[dataset]):
                del self._waiting[dataset]
                done += drawn
            else:
                self._without.add(dataset)
        return done

    def _drawn(self, batch: Sharding) -> list[Drawn]:
        """Returns a batch with its pictures, if it has some."""
        self._batches.add([batch])
        detail = self._batches.detail()
        images = {} if detail is None else _images(detail)
        return [(batch, images)] if images else []

    def _chooses(self, event: Sharding) -> bool:
        dataset = event.dataset
        chosen = event.time_ns >= self._next_ns
        if dataset not in self._datasets and len(self._datasets) < _MOST_DATASETS:
            self._datasets.add(dataset)
            self._all_full.add(dataset)
            chosen = True
        if dataset in self._all_full and any(size != event.nominal for size in event.parts):
            self._all_full.remove(dataset)
            chosen = True
        if chosen:
            self._next_ns = event.time_ns + _EVERY_NS
        return chosen


def _images(batch: BatchDetail) -> dict[str, npt.NDArray[np.uint8]]:
    """Returns a picture for each replica with examples; none where nothing has a preview."""
    pixels = batch["pixels"]
    if not pixels.size or not batch["known"].any():
        return {}
    examples = _greys(pixels) if batch["form"] == "numbers" else pixels.astype(np.uint8)
    stops = np.cumsum(batch["size"])
    return {
        f"distlab/batch/replica {replica}": _sheet(examples[stop - size : stop][:_MOST_EXAMPLES])
        for replica, (stop, size) in enumerate(zip(stops, batch["size"], strict=True))
        if size
    }


def _sheet(examples: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Returns pictures as a grid, and examples that are rows of numbers one below the other."""
    return enlarge(examples, _CELL, _CELL) if examples.ndim == 2 else _tiled(examples)


def _greys(numbers: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Returns numbers as brightness, black for the batch's lowest."""
    finite = np.nan_to_num(numbers, posinf=0.0, neginf=0.0)
    low, high = float(finite.min()), float(finite.max())
    return ((finite - low) * (255 / ((high - low) or 1))).astype(np.uint8)


def _tiled(pictures: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Returns pictures in rows, from left to right, with a dark line between them."""
    across = math.ceil(math.sqrt(len(pictures)))
    down = math.ceil(len(pictures) / across)
    height, width = pictures.shape[1] + 1, pictures.shape[2] + 1
    sheet = np.zeros((down * height - 1, across * width - 1, *pictures.shape[3:]), np.uint8)
    for place, picture in enumerate(pictures):
        top, left = place // across * height, place % across * width
        sheet[top : top + height - 1, left : left + width - 1] = picture
    return sheet
