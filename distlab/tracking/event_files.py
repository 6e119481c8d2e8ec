"""TensorBoard's event files: records of `tensorflow.Event` messages, without TensorFlow.

A message is a sequence of fields: a number and the value's form, and the value. The numbers here
are those of TensorFlow's event.proto, summary.proto, tensor.proto and types.proto.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from distlab.io._records import record_of

_BUFFER: Final = 1 << 20
_STRING: Final = 7
"""`DT_STRING`, the type of a tensor of texts."""

_files = itertools.count()


class EventFile:
    """A new event file in a folder; what was written is there after `flush`."""

    def __init__(self, folder: Path, unix_ns: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        seconds = unix_ns // 1_000_000_000
        name = f"events.out.tfevents.{seconds}.{socket.gethostname()}.{os.getpid()}.{next(_files)}"
        self.path = folder / name
        self._file = self.path.open("xb", buffering=_BUFFER)
        self._add(_time(unix_ns) + _text(3, "brain.Event:2"))
        self.flush()

    def scalars(self, step: int, values: Mapping[str, float], unix_ns: int) -> None:
        """Adds numbers by their names."""
        summary = b"".join(
            _bytes(1, _text(1, name) + _key(2, 5) + struct.pack("<f", _single(value)))
            for name, value in values.items()
        )
        self._add(_time(unix_ns) + _number(2, step) + _bytes(5, summary))

    def text(self, step: int, name: str, text: str, unix_ns: int) -> None:
        """Adds a text, which TensorBoard reads as Markdown."""
        plugin = _bytes(9, _bytes(1, _text(1, "text")))
        shape = _bytes(2, _bytes(2, _number(1, 1)))
        tensor = _bytes(8, _number(1, _STRING) + shape + _text(8, text))
        summary = _bytes(1, _text(1, name) + plugin + tensor)
        self._add(_time(unix_ns) + _number(2, step) + _bytes(5, summary))

    def image(
        self, step: int, name: str, png: bytes, size: tuple[int, int, int], unix_ns: int
    ) -> None:
        """Adds a picture."""
        height, width, channels = size
        sizes = _number(1, height) + _number(2, width) + _number(3, channels)
        summary = _bytes(1, _text(1, name) + _bytes(4, sizes + _bytes(4, png)))
        self._add(_time(unix_ns) + _number(2, step) + _bytes(5, summary))

    def flush(self) -> None:
        """Writes what was added."""
        self._file.flush()

    def close(self) -> None:
        """Writes what was added, and closes the file."""
        self._file.close()

    def _add(self, event: bytes) -> None:
        self._file.write(record_of(event))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _key(field: int, form: int) -> bytes:
    return _varint(field << 3 | form)


def _number(field: int, number: int) -> bytes:
    return _key(field, 0) + _varint(number)


def _bytes(field: int, data: bytes) -> bytes:
    return _key(field, 2) + _varint(len(data)) + data


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode("utf-8", "replace"))


def _time(unix_ns: int) -> bytes:
    """Returns the field of an event's time, in seconds."""
    return _key(1, 1) + struct.pack("<d", unix_ns / 1e9)


def _single(value: float) -> float:
    """Returns a number that a single-precision float can hold: infinite beyond its range."""
    try:
        struct.pack("<f", value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return value
