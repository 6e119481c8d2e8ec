"""TFRecord files: records with checksums of their lengths and of their data.

A record is its length (8 bytes), the checksum of the length (4), the data, and the
checksum of the data (4); numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

import google_crc32c

from distlab.errors import DataLossError

_HEAD: Final = struct.Struct("<QI")
_CHECKSUM: Final = struct.Struct("<I")
_MOST_AT_ONCE: Final = 1 << 24
"""The bytes that are requested at once, since a length may be wrong."""


def masked_crc32c(data: bytes) -> int:
    """Returns the 32-bit checksum of bytes, CRC-32C masked as TFRecord files store it."""
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def tf_records(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Yields the records, and verifies the checksums of their lengths and data."""
    place = _Place(path, 0, 0)
    while head := file.read(_HEAD.size):
        data = _data(file, head, place)
        yield data
        place = place.after(data)


def record_of(data: bytes) -> bytes:
    """Returns data as a record."""
    length = struct.pack("<Q", len(data))
    checksums = (_CHECKSUM.pack(masked_crc32c(part)) for part in (length, data))
    return b"".join((length, next(checksums), data, next(checksums)))


class _Place(NamedTuple):
    """The place of a record."""

    path: str
    number: int
    offset: int

    def after(self, data: bytes) -> _Place:
        size = _HEAD.size + len(data) + _CHECKSUM.size
        return _Place(self.path, self.number + 1, self.offset + size)

    def __str__(self) -> str:
        return f"the record at byte {self.offset} (number {self.number}, from 0)"


def _data(file: BinaryIO, head: bytes, place: _Place) -> bytes:
    if len(head) < _HEAD.size:
        raise DataLossError(
            f"{place.path} is cut off, or is not a TFRecord file: {place} has {len(head)} of the "
            f"{_HEAD.size} bytes of its length. Write the file again."
        )
    length, checksum = _HEAD.unpack(head)
    if checksum != masked_crc32c(head[:8]):
        raise DataLossError(
            f"{place.path} is not a TFRecord file, or is damaged at byte {place.offset}: the "
            f"checksum of the length of {place} is wrong. If the file is compressed, set "
            "compression_type; otherwise write it again."
        )
    data = _read(file, length)
    footer = file.read(_CHECKSUM.size) if len(data) == length else b""
    if len(footer) < _CHECKSUM.size:
        raise DataLossError(
            f"{place.path} is cut off: {place} needs {length + _CHECKSUM.size} bytes for its data "
            f"and checksum, and {len(data) + len(footer)} are left. Write the file again."
        )
    if _CHECKSUM.unpack(footer)[0] != masked_crc32c(data):
        raise DataLossError(
            f"{place.path} is damaged: the checksum of the {length} bytes of data of {place} is "
            "wrong. Write the file again."
        )
    return data


def _read(file: BinaryIO, length: int) -> bytes:
    if length <= _MOST_AT_ONCE:
        return file.read(length)
    parts = []
    while length and (part := file.read(min(length, _MOST_AT_ONCE))):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
