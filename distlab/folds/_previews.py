"""Previews of examples, in bounded memory."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np

from distlab.events import Preview
from distlab.folds.arrays import Flags, Ints, Pixels

_MOST_BYTES = 64 * 2**20
_LARGEST_SIDE = 64  # twice that of the previews that are recorded


@dataclass(frozen=True)
class Pictures:
    """Previews of the examples of one batch, in their order."""

    form: str  # `"image"`, `"numbers"`, or empty when no example has a preview
    pixels: Pixels  # `(examples, *shape)`, uint8 or float32; zeros where unknown
    known: Flags  # Whether each example has a preview
    labels: list[str]


_Numbered = tuple[int, int | None, int]
"""The range of positions: a dataset, or without positions in its source a batch of an epoch."""


class Previews:
    """The first 64 MB of previews, found by the example's position in its source."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._left = most_bytes
        self._sheets: list[Pictures] = []
        self._positions: dict[_Numbered, list[tuple[int, Ints]]] = {}  # with each sheet's number
        self._looked_at: _Numbered | None = None
        self._places: dict[int, tuple[int, int]] = {}  # of that range alone: they outweigh sheets
        self._placed = 0

    def add(self, event: Preview) -> None:
        """Adds one event; an example that has a preview keeps it."""
        if len(event.data) > self._left or max(event.shape, default=0) > _LARGEST_SIDE:
            return
        positions, pixels = np.frombuffer(event.indices, "<i8"), _unpack(event)
        if pixels.size != len(positions) * math.prod(event.shape):
            return  # the previews are not those of these examples
        self._left -= len(event.data)
        pixels = pixels.reshape(len(positions), *event.shape)
        key = _numbered(event.dataset, event.batch, event.epoch)
        self._positions.setdefault(key, []).append((len(self._sheets), positions))
        known = np.ones(len(positions), bool)
        labels = list(map(sys.intern, event.labels))  # few, each epoch again
        self._sheets.append(Pictures(event.form, pixels, known, labels))

    def find(
        self, dataset: int, batch: int, epoch: int, positions: list[int] | None, examples: int
    ) -> Pictures:
        """Returns the previews of one batch."""
        key = _numbered(dataset, batch, epoch)
        if key not in self._positions and positions:
            key = _numbered(dataset, None, 0)
        self._look_at(key)
        wanted = range(examples) if positions is None else positions
        found = [self._places.get(position) for position in wanted]
        first = next((place for place in found if place), None)
        if first is None or self._nbytes(first) * examples > _MOST_BYTES:
            nothing = np.zeros((examples, 0), np.uint8)
            return Pictures("", nothing, np.zeros(examples, bool), [""] * examples)
        return self._gather(found, self._sheets[first[0]])

    def _look_at(self, key: _Numbered) -> None:
        if self._looked_at != key:
            self._looked_at, self._places, self._placed = key, {}, 0
        sheets = self._positions.get(key, [])
        for number, positions in sheets[self._placed :]:
            for row, position in enumerate(positions.tolist()):
                self._places.setdefault(position, (number, row))
        self._placed = len(sheets)

    def _nbytes(self, place: tuple[int, int]) -> int:
        return self._sheets[place[0]].pixels[place[1]].nbytes

    def _gather(self, found: list[tuple[int, int] | None], like: Pictures) -> Pictures:
        pixels = np.zeros((len(found), *like.pixels.shape[1:]), like.pixels.dtype)
        known = np.zeros(len(found), bool)
        labels = [""] * len(found)
        for number, place in enumerate(found):
            if place is None:
                continue
            sheet, row = self._sheets[place[0]], place[1]
            if sheet.form != like.form or sheet.pixels.shape[1:] != like.pixels.shape[1:]:
                continue  # one sheet of pictures has one form: the others stay unknown
            pixels[number] = sheet.pixels[row]
            known[number] = True
            labels[number] = sheet.labels[row] if row < len(sheet.labels) else ""
        return Pictures(like.form, pixels, known, labels)


def _unpack(event: Preview) -> Pixels:
    if event.form == "image":
        return np.frombuffer(event.data, np.uint8)
    return np.frombuffer(event.data, "<f4").astype(np.float32)


def _numbered(dataset: int, batch: int | None, epoch: int) -> _Numbered:
    return (dataset, None, 0) if batch is None else (dataset, batch, epoch)
