"""TFRecordWriter: records into a file."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias, final

from distlab.errors import ArgumentTypeError, ContextError
from distlab.io._files import checked_compression, path_of, writing
from distlab.io._records import record_of

_LEVEL: Final = 6


@dataclass(frozen=True)
class TFRecordOptions:
    """The compression of a TFRecord file (`tf.io.TFRecordOptions`).

    Attributes:
      compression_type: `"GZIP"`, `"ZLIB"`, or None for no compression.
      compression_level: From 0, the fastest, to 9, the smallest; None for 6.

    Raises:
      InvalidArgumentError: `compression_type` has another value.

    Example:
      >>> import distlab as dl
      >>> options = dl.io.TFRecordOptions("GZIP", compression_level=9)
      >>> with dl.io.TFRecordWriter("data.tfrecord.gz", options) as writer:
      ...     writer.write(b"hello")
      >>> print(*dl.data.TFRecordDataset("data.tfrecord.gz", "GZIP"))
      b'hello'
    """

    compression_type: str | None = None
    compression_level: int | None = None

    def __post_init__(self) -> None:
        """Checks the options."""
        checked_compression(self.compression_type)


@final
class TFRecordWriter:
    """Writes records into a file (`tf.io.TFRecordWriter`).

    Leaving its `with` block, or `close`, ends the file.

    Args:
      path: The file's name; an existing file is replaced.
      options: `TFRecordOptions`, or only their `compression_type`.

    Raises:
      InvalidArgumentError: An argument has another form.
      OSError: The file can't be written.

    Example:
      >>> import distlab as dl
      >>> with dl.io.TFRecordWriter("numbers.tfrecord") as writer:
      ...     for number in range(3):
      ...         writer.write(dl.io.serialize_example({"number": number}))
      >>> feature = {"number": dl.io.FixedLenFeature([], "int64")}
      >>> records = dl.data.TFRecordDataset("numbers.tfrecord")
      >>> numbers = records.map(lambda record: dl.io.parse_single_example(record, feature))
      >>> [int(element["number"]) for element in numbers]
      [0, 1, 2]
    """

    def __init__(self, path: Any, options: TFRecordOptions | str | None = None) -> None:
        chosen = options if isinstance(options, TFRecordOptions) else TFRecordOptions(options)
        self._name = path_of(path)
        self._file: _File | None = _opened(self._name, chosen)

    def write(self, record: bytes | str) -> None:
        """Writes one record.

        Args:
          record: The data. Text is encoded as UTF-8.

        Raises:
          ArgumentTypeError: `record` has another type.
          ContextError: The writer was closed.
        """
        data = record.encode() if isinstance(record, str) else record
        if not isinstance(data, bytes):
            raise ArgumentTypeError(
                f"A record must be bytes, got {type(record).__name__}. Serialize it first, for "
                "example with distlab.io.serialize_example."
            )
        file = self._open()
        with writing(self._name):
            file.write(record_of(data))

    def flush(self) -> None:
        """Hands the records so far to the operating system.

        Raises:
          ContextError: The writer was closed.
        """
        file = self._open()
        with writing(self._name):
            file.flush()

    def close(self) -> None:
        """Ends the file. Further calls do nothing."""
        file, self._file = self._file, None
        if file is not None:
            with writing(self._name):
                file.close()

    def __enter__(self) -> TFRecordWriter:
        """Returns itself."""
        self._open()
        return self

    def __exit__(self, *error: object) -> None:
        """Ends the file."""
        self.close()

    def _open(self) -> _File:
        if self._file is None:
            raise ContextError(
                "This TFRecordWriter was closed, so it can write no more. Write before close(), or "
                "inside of the with block."
            )
        return self._file


@final
class _Deflated:
    """A file that zlib compresses."""

    def __init__(self, file: BinaryIO, level: int) -> None:
        self._file = file
        self._deflater = zlib.compressobj(level)

    def write(self, data: bytes) -> None:
        self._file.write(self._deflater.compress(data))

    def flush(self) -> None:
        self._file.write(self._deflater.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def close(self) -> None:
        with self._file:
            self._file.write(self._deflater.flush())


_File: TypeAlias = BinaryIO | gzip.GzipFile | _Deflated


def _opened(path: str, options: TFRecordOptions) -> _File:
    level = _LEVEL if options.compression_level is None else options.compression_level
    if options.compression_type == "GZIP":
        return gzip.open(path, "wb", level)
    file = Path(path).open("wb")  # noqa: SIM115 - close() closes it
    return _Deflated(file, level) if options.compression_type == "ZLIB" else file
