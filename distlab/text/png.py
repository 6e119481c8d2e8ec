"""Small pictures as PNG, for pages without scripts and for loggers."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}
"""By channels: grey, red-green-blue, and that with opacity."""


def encode(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Returns a picture as a PNG file."""
    height, width = pixels.shape[:2]
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    lines = np.zeros((height, 1 + channels * width), np.uint8)  # each: filter 0, then pixels
    lines[:, 1:] = pixels.reshape(height, channels * width)
    data = zlib.compress(lines.tobytes(), 9)
    return b"".join(
        (_SIGNATURE, _chunk(b"IHDR", header), _chunk(b"IDAT", data), _chunk(b"IEND", b""))
    )


def data_uri(pixels: npt.NDArray[np.uint8]) -> str:
    """Returns a picture as text for the `src` of an `img` element."""
    return f"data:image/png;base64,{base64.b64encode(encode(pixels)).decode()}"


def enlarge(pixels: npt.NDArray[Any], across: int, down: int) -> npt.NDArray[Any]:
    """Returns a picture in which each pixel is a crisp rectangle."""
    return pixels.repeat(down, axis=0).repeat(across, axis=1)


def _chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
