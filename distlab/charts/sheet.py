"""One picture of all examples of a batch: tiles in rows, a block for each replica."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from distlab.folds.arrays import Floats, Ints, Pixels

Pictures: TypeAlias = npt.NDArray[np.uint8]

_ASPECT = 1.7
_BLOCK_GAP = 1 / 3
_MOST_PIXELS = 400_000
_LEAST_SIDE = 8


@dataclass(frozen=True)
class Grid:
    """Places of tiles, in units of one tile; y grows upwards from the first row."""

    columns: int
    lines: int
    replicas: int

    @property
    def pitch(self) -> float:
        """Distance from one block to the next."""
        return self.lines + _BLOCK_GAP

    @property
    def height(self) -> float:
        """Height of all blocks."""
        return self.replicas * self.pitch - _BLOCK_GAP

    def corner(self, replica: npt.ArrayLike, place: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Returns the upper left corner of the tile at `place` of a replica."""
        line, column = np.divmod(np.asarray(place), self.columns)
        top = -(np.asarray(replica) * self.pitch + line)
        return column.astype(np.float64), top.astype(np.float64)


def fit(replicas: int, share: int) -> Grid:
    """Returns the grid whose tiles are largest in a figure 1.7 times as wide as high."""

    def tile(columns: int) -> float:
        lines = math.ceil(share / columns)
        return min(_ASPECT / columns, 1 / (replicas * (lines + _BLOCK_GAP)))

    columns = max(range(1, share + 1), key=lambda count: (tile(count), -count))
    return Grid(columns, math.ceil(share / columns), replicas)


def sheet(
    pictures: Pictures, grid: Grid, replica: Ints, place: Ints
) -> tuple[npt.NDArray[np.uint32], float, float]:
    """Returns one RGBA picture of all tiles."""
    pictures = _scaled(pictures, grid)
    high, wide = pictures.shape[1:3]
    size = max(high, wide)
    pitch = 3 * math.ceil((size + max(1, round(size / 9))) / 3)  # so that a gap is whole pixels
    block = round(grid.pitch * pitch)
    picture = np.zeros((block * grid.replicas, pitch * grid.columns, 4), np.uint8)
    lines, columns = np.divmod(place, grid.columns)
    tops = replica * block + lines * pitch + (size - high) // 2
    lefts = columns * pitch + (size - wide) // 2
    rows = tops[:, None, None] + np.arange(high)[None, :, None]
    across = lefts[:, None, None] + np.arange(wide)[None, None, :]
    picture[rows, across, :3] = pictures if pictures.ndim == 4 else pictures[..., None]
    picture[rows, across, 3] = 255
    flat = np.ascontiguousarray(picture[::-1]).view("<u4")[..., 0]
    return flat, picture.shape[1] / pitch, picture.shape[0] / pitch


def _scaled(pictures: Pictures, grid: Grid) -> Pictures:
    """Returns pictures enlarged when tiny, and reduced when the whole would be too large."""
    high, wide = pictures.shape[1:3]
    if max(high, wide) < _LEAST_SIDE:  # or the gaps would be as large as the pictures
        times = math.ceil(_LEAST_SIDE / max(high, wide))
        return pictures.repeat(times, axis=1).repeat(times, axis=2)
    whole = max(high, wide) ** 2 * grid.columns * grid.lines * grid.replicas
    factor = math.ceil(math.sqrt(whole / _MOST_PIXELS))
    if factor < 2 or min(high, wide) < 2 * factor:
        return pictures
    cut = pictures[:, : high // factor * factor, : wide // factor * factor]
    squares = cut.reshape(len(cut), high // factor, factor, wide // factor, factor, *cut.shape[3:])
    means: Pictures = squares.mean(axis=(2, 4)).astype(np.uint8)
    return means


def as_pictures(pixels: Pixels) -> Pictures:
    """Returns previews as pictures."""
    if pixels.dtype == np.uint8:
        return pixels.view(np.uint8)
    numbers = pixels.astype(np.float32)
    side = math.ceil(math.sqrt(max(1, numbers.shape[1])))
    finite = np.where(np.isfinite(numbers), numbers, np.nan)
    known = finite[~np.isnan(finite)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    grey = (finite - low) / ((high - low) or 1.0) * 255
    square = np.zeros((len(numbers), side * side), np.float32)
    square[:, : numbers.shape[1]] = np.nan_to_num(grey)
    return square.reshape(-1, side, side).astype(np.uint8)
