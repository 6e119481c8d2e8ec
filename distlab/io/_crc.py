"""CRC-32C (Castagnoli), masked as TFRecord files store it."""

from __future__ import annotations

import google_crc32c


def masked_crc32c(data: bytes) -> int:
    """Returns the 32-bit checksum of bytes."""
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
