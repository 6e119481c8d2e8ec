"""Files as datasets: list_files, lines of text, and TFRecord records."""

from __future__ import annotations

import functools
import glob
import gzip
import io
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from distlab.data import _arrays
from distlab.data._crc import masked_crc32c
from distlab.data._engine import Element, Stream
from distlab.data._interleave import InterleaveStream
from distlab.data._plan import UNKNOWN_CARDINALITY, Opener, Reading, Unary
from distlab.data._replay import ReplayStream
from distlab.data._spec import TensorSpec
from distlab.errors import InvalidArgumentError

_COMPRESSIONS = ("", "GZIP", "ZLIB")


@dataclass(frozen=True, eq=False)
class Files(Unary):
    """The contents of the files that its input names.

    Attributes:
      parse: A function that yields the elements of an open file.
      compression: `""`, `"GZIP"` or `"ZLIB"`.
      at_a_time: The number of files that are read in turns.
    """

    parse: Callable[[BinaryIO, str], Iterator[bytes]]
    compression: str
    at_a_time: int

    @property
    def spec(self) -> TensorSpec:
        """One string."""
        return TensorSpec((), np.dtype(object))

    @property
    def cardinality(self) -> int:
        """Unknown."""
        return UNKNOWN_CARDINALITY

    @property
    def extent(self) -> int | None:
        """None: their elements have no positions."""
        return None

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the files, `at_a_time` of them in turns."""
        names = open_input(self.input, reading)
        return InterleaveStream(names, self._open, self.at_a_time, 1)

    def _open(self, number: int, name: Element) -> Stream:
        del number
        return ReplayStream(functools.partial(self._elements, path_of(name.value)))

    def _elements(self, path: str) -> Iterator[bytes]:
        with _open_file(path, self.compression) as file:
            yield from self.parse(file, path)


def text_lines(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Yields the lines without line ends and, as TensorFlow, without carriage returns."""
    del path
    for line in file:
        yield line.removesuffix(b"\n").replace(b"\r", b"")


def tf_records(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Yields the records, and verifies the checksums of their lengths.

    Raises:
      InvalidArgumentError: The file is not a TFRecord file, or is cut off.
    """
    offset = 0
    while head := file.read(12):
        length, checksum = struct.unpack("<QI", head) if len(head) == 12 else (0, -1)
        if checksum != masked_crc32c(head[:8]):
            raise InvalidArgumentError(
                f"{path} is not a TFRecord file, or is damaged at byte {offset}: the checksum "
                "of a record's length is wrong. If it is compressed, set compression_type."
            )
        body = file.read(length + 4)
        if len(body) < length + 4:
            raise InvalidArgumentError(
                f"{path} is cut off: the record at byte {offset} needs {length} bytes, "
                f"and {len(body)} are left. Write the file again."
            )
        offset += 16 + length
        yield body[:length]


def named_files(filenames: Any) -> _arrays.ArraySource:
    """Returns the source of one file name or a list of file names.

    Raises:
      InvalidArgumentError: A name is not a string or a path.
    """
    names = [filenames] if isinstance(filenames, str | bytes | os.PathLike) else filenames
    flat = np.asarray(names, dtype=object).ravel().tolist()
    return _arrays.rows_of(np.array([path_of(name) for name in flat], dtype=np.str_))


def matching_files(file_pattern: Any) -> _arrays.ArraySource:
    """Returns the source of the sorted names of files that match one of the patterns.

    Raises:
      InvalidArgumentError: No file matches.
    """
    patterns = np.asarray(file_pattern, dtype=object).ravel().tolist()
    # Not Path.glob, which takes no absolute patterns.
    found = {
        name
        for pattern in patterns
        for name in glob.glob(path_of(pattern))  # noqa: PTH207
    }
    if not found:
        raise InvalidArgumentError(f"No file matches {file_pattern!r}.")
    return _arrays.rows_of(np.array(sorted(found), dtype=np.str_))


def path_of(name: Any) -> str:
    """Returns a file name of type text, bytes, path, or NumPy string as text.

    Raises:
      InvalidArgumentError: `name` has another type.
    """
    try:
        return os.fsdecode(name.item() if isinstance(name, np.ndarray | np.generic) else name)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"A file name must be a string or a path, got {name!r}"
        ) from None


def checked_compression(compression: str | None) -> str:
    """Returns the name of a compression, empty for none.

    Raises:
      InvalidArgumentError: `compression` is another name.
    """
    chosen = compression or ""
    if chosen not in _COMPRESSIONS:
        raise InvalidArgumentError(
            f"compression_type must be one of {', '.join(map(repr, _COMPRESSIONS))}, "
            f"got {compression!r}"
        )
    return chosen


def _open_file(path: str, compression: str) -> Any:
    if compression == "GZIP":
        return gzip.open(path, "rb")
    if compression == "ZLIB":
        return io.BytesIO(zlib.decompress(Path(path).read_bytes()))
    return Path(path).open("rb")
