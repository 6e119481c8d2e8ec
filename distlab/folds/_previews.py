"""What examples look like, kept for as long as they fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from distlab.events import Preview

_MOST_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Pictures:
    """Previews of the examples of one batch, in the order asked for.

    Attributes:
      form: `"image"`, `"numbers"`, or `""` when there is not one preview.
      pixels: `(examples, *shape)`, uint8 for images and float32 for numbers;
        zeros where `known` is false. Shape `(examples, 0)` without a preview.
      known: bool array: which examples have a preview.
      labels: each example's short label, empty when there is none.
    """

    form: str
    pixels: npt.NDArray[np.uint8] | npt.NDArray[np.float32]
    known: npt.NDArray[np.bool_]
    labels: list[str]


@dataclass(frozen=True)
class _Sheet:
    """One `Preview` event, unpacked."""

    form: str
    pixels: npt.NDArray[np.uint8] | npt.NDArray[np.float32]
    labels: list[str]


_Whole = tuple[int, int | None, int]
"""Dataset, and batch and epoch for sources without positions (else None and 0)."""


class Previews:
    """All previews so far, found by the example's position in its source.

    Attributes:
      left_out: examples whose preview did not fit into 64 MB.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        """Keeps up to `most_bytes` of previews."""
        self._left = most_bytes
        self._sheets: list[_Sheet] = []
        self._places: dict[_Whole, dict[int, tuple[int, int]]] = {}
        self.left_out = 0

    def add(self, event: Preview) -> None:
        """Takes one event; an example that was seen before keeps its preview."""
        positions = np.frombuffer(event.indices, "<i8").tolist()
        if len(event.data) > self._left:
            self.left_out += len(positions)
            return
        self._left -= len(event.data)
        pixels = _unpack(event).reshape(len(positions), *event.shape)
        places = self._places.setdefault(_whole(event.dataset, event.batch, event.epoch), {})
        for row, position in enumerate(positions):
            places.setdefault(position, (len(self._sheets), row))
        self._sheets.append(_Sheet(event.form, pixels, event.labels))

    def find(
        self, dataset: int, batch: int, epoch: int, positions: list[int] | None, examples: int
    ) -> Pictures:
        """Returns the previews of one batch.

        Args:
          dataset: number of the distributed dataset.
          batch: number of the batch, for sources without positions.
          epoch: its epoch.
          positions: each example's position in the source; None when the source
            has none, then previews count within the batch.
          examples: how many examples the batch holds.
        """
        places = self._places.get(_whole(dataset, batch, epoch))
        if places is None:
            places = self._places.get(_whole(dataset, None, 0), {}) if positions else {}
        wanted = range(examples) if positions is None else positions
        found = [places.get(position) for position in wanted]
        first = next((place for place in found if place), None)
        if first is None:
            nothing = np.zeros((examples, 0), np.uint8)
            return Pictures("", nothing, np.zeros(examples, bool), [""] * examples)
        return self._gather(found, self._sheets[first[0]])

    def _gather(self, found: list[tuple[int, int] | None], like: _Sheet) -> Pictures:
        pixels = np.zeros((len(found), *like.pixels.shape[1:]), like.pixels.dtype)
        known = np.zeros(len(found), bool)
        labels = [""] * len(found)
        for number, place in enumerate(found):
            if place is None:
                continue
            sheet, row = self._sheets[place[0]], place[1]
            if sheet.form != like.form or sheet.pixels.shape[1:] != like.pixels.shape[1:]:
                continue  # one picture sheet can't mix forms; the odd one stays unknown
            pixels[number] = sheet.pixels[row]
            known[number] = True
            labels[number] = sheet.labels[row] if sheet.labels else ""
        return Pictures(like.form, pixels, known, labels)


def _unpack(event: Preview) -> npt.NDArray[np.uint8] | npt.NDArray[np.float32]:
    if event.form == "image":
        return np.frombuffer(event.data, np.uint8)
    return np.frombuffer(event.data, "<f4").astype(np.float32)


def _whole(dataset: int, batch: int | None, epoch: int) -> _Whole:
    return (dataset, None, 0) if batch is None else (dataset, batch, epoch)
