"""Shares over time as small images, one for each lane."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from distlab.text.png import data_uri, enlarge
from distlab.widgets._static_html import image

_MOST_CELLS = 80
_HIGH = 16


@cache
def _palette() -> npt.NDArray[np.uint8]:
    from bokeh.palettes import Cividis256

    return np.array([tuple(bytes.fromhex(code[1:])) for code in Cividis256], np.uint8)


def strips(shares: npt.NDArray[np.float64], width: int) -> list[str]:
    """Returns an image for each lane: dark for low shares, yellow for high ones."""
    shares = _thinned(shares)
    codes = np.clip(np.nan_to_num(shares) * 255, 0, 255).astype(np.uint8)
    seen = np.where(np.isnan(shares), 0, 255).astype(np.uint8)
    rgba = np.concatenate([_palette()[codes], seen[..., None]], axis=2)
    across = max(1, width // max(1, len(shares)))
    return [
        image(data_uri(enlarge(rgba[None, :, lane], across, _HIGH)), width)
        for lane in range(shares.shape[1])
    ]


def _thinned(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns means of neighbouring cells, of at most `_MOST_CELLS` groups."""
    group = -(-len(shares) // _MOST_CELLS)
    if group < 2:
        return shares
    rest = -len(shares) % group
    padded = np.concatenate([shares, np.full((rest, shares.shape[1]), np.nan)])
    parts = padded.reshape(-1, group, shares.shape[1])
    known = ~np.isnan(parts)
    sums, counts = np.nansum(parts, axis=1), known.sum(axis=1)
    means: npt.NDArray[np.float64] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means
