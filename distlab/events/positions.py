"""Positions of a batch's examples as bytes: of each as few as the largest needs."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import numpy.typing as npt


class Packed(TypedDict):
    """The fields of `Sharding` that hold positions."""

    indices: bytes | None
    index_bytes: int


def packed(positions: npt.NDArray[np.int64] | None) -> Packed:
    r"""Returns positions, none of them below 0, as the fields of an event.

    Example:
      >>> import numpy as np
      >>> from distlab.events.positions import packed
      >>> packed(np.array([3, 400]))
      {'indices': b'\x03\x00\x90\x01', 'index_bytes': 2}
    """
    if positions is None:
        return {"indices": None, "index_bytes": 8}
    most = int(positions.max(initial=0))
    width = next((width for width in (1, 2, 4) if most < 1 << 8 * width), 8)
    return {"indices": positions.astype(f"<u{width}").tobytes(), "index_bytes": width}


def unpacked(indices: bytes, width: int) -> npt.NDArray[np.int64]:
    """Returns the positions in such fields."""
    return np.frombuffer(indices, f"<u{width}").astype(np.int64)
