"""CRC-32C (Castagnoli), masked as TFRecord files store it."""

from __future__ import annotations

_POLYNOMIAL = 0x82F63B78


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = [_table_entry(value) for value in range(256)]


def masked_crc32c(data: bytes) -> int:
    """Returns the 32-bit checksum of bytes; in Python, hence for few of them."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
