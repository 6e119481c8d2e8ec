"""TextLineDataset and TFRecordDataset: the contents of files as datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from distlab.data._arguments import integer
from distlab.data._dataset import Dataset
from distlab.data._files import (
    Files,
    checked_compression,
    named_files,
    text_lines,
    tf_records,
)
from distlab.data._options import Options


class TextLineDataset(Dataset):
    """The lines of text files as `bytes`, without their ends."""

    def __init__(
        self,
        filenames: Any,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
    ) -> None:
        """Nothing is opened before the dataset is iterated.

        Args:
          filenames: one name or path, a list of them, or a `Dataset` of them.
          compression_type: `"GZIP"`, `"ZLIB"`, or None for files as they are.
          buffer_size: taken for tf.data's sake.
          num_parallel_reads: how many files are read in turns; None: one after
            the other.

        Raises:
          InvalidArgumentError: when an argument is none of these.
        """
        del buffer_size
        super().__init__(*_read(filenames, text_lines, compression_type, num_parallel_reads))


class TFRecordDataset(Dataset):
    """The records of TFRecord files as `bytes`.

    The checksums of the records' lengths are verified, those of their data are
    not.
    """

    def __init__(
        self,
        filenames: Any,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
    ) -> None:
        """Nothing is opened before the dataset is iterated.

        Args:
          filenames: one name or path, a list of them, or a `Dataset` of them.
          compression_type: `"GZIP"`, `"ZLIB"`, or None for files as they are.
          buffer_size: taken for tf.data's sake.
          num_parallel_reads: how many files are read in turns; None: one after
            the other.

        Raises:
          InvalidArgumentError: when an argument is none of these; while
            iterating, when a file is damaged.
        """
        del buffer_size
        super().__init__(*_read(filenames, tf_records, compression_type, num_parallel_reads))


def _read(
    filenames: Any,
    parse: Callable[[BinaryIO, str], Iterator[bytes]],
    compression: str | None,
    at_a_time: int | None,
) -> tuple[Files, Options]:
    names = filenames if isinstance(filenames, Dataset) else Dataset(named_files(filenames))
    count = 1
    if at_a_time not in {None, -1}:
        count = integer("the dataset", "num_parallel_reads", at_a_time, at_least=1)
    return Files(names.plan, parse, checked_compression(compression), count), names.options()
