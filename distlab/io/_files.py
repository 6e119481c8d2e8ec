"""Files: their names, their compression, and their contents."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from distlab.errors import InvalidArgumentError, NotFoundError
from distlab.text.paths import at_home
from distlab.text.shown import shown

_COMPRESSIONS: Final = ("", "GZIP", "ZLIB")

COMPRESSION_ERRORS: Final = (EOFError, gzip.BadGzipFile, zlib.error)
"""Errors of reading a file whose compressed data is damaged."""


def path_of(name: Any) -> str:
    """Returns a file name of type text, bytes, path, or NumPy string as text; `~` is the home."""
    try:
        return at_home(
            os.fsdecode(name.item() if isinstance(name, np.ndarray | np.generic) else name)
        )
    except Exception:  # noqa: BLE001 - any code of the user's
        raise InvalidArgumentError(
            f"A file name must be a string or a path, got {shown(name)}. "
            "Write for example 'data/train.tfrecord'."
        ) from None


def read_file(filename: Any) -> bytes:
    """Returns the contents of a file (`tf.io.read_file`).

    Args:
      filename: The file's name: text, `bytes` as in the elements of
        `Dataset.list_files`, or a path.

    Raises:
      InvalidArgumentError: `filename` is no name.
      NotFoundError: There is no such file.
      OSError: The file can't be read.

    Example:
      >>> import pathlib
      >>> import distlab as dl
      >>> pathlib.Path("a.bin").write_bytes(b"contents")
      8
      >>> print(*dl.data.Dataset.list_files("*.bin").map(dl.io.read_file))
      b'contents'
    """
    with opened(path_of(filename)) as file:
        return file.read()


def checked_compression(compression: Any) -> str:
    """Returns the name of a compression, empty for none."""
    if compression is None:
        return ""
    if not isinstance(compression, str) or compression not in _COMPRESSIONS:
        raise InvalidArgumentError(
            f"compression_type must be one of {', '.join(map(repr, _COMPRESSIONS))}, "
            f"got {shown(compression)}. Leave it out for files that are not compressed."
        )
    return compression


def open_file(path: str, compression: str) -> BinaryIO:
    """Opens a file for reading; damaged compressed data raises one of `COMPRESSION_ERRORS`."""
    if compression == "GZIP":
        with _explained(path):
            return gzip.open(path, "rb")  # type: ignore[return-value]
    if compression == "ZLIB":
        with opened(path) as file:
            return io.BytesIO(zlib.decompress(file.read()))
    return opened(path)


def opened(path: str) -> BinaryIO:
    """Opens a file for reading."""
    with _explained(path):
        return Path(path).open("rb")


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    """Explains a missing file."""
    try:
        yield
    except FileNotFoundError as error:
        remedy = "Copy it to this machine first" if "://" in path else "Pass the name of one"
        raise NotFoundError(
            f"There is no file {shown(path, 300)}, seen from {shown(str(Path.cwd()), 300)}. "
            f"{remedy}."
        ) from error


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Adds to errors of the disk the file that could not be written, and the remedy."""
    try:
        yield
    except OSError as error:
        error.add_note(
            f"{shown(path, 300)} could not be written whole. Free space on its disk, or choose "
            "another folder, and write it again."
        )
        raise
