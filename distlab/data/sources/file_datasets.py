"""TextLineDataset and TFRecordDataset: the contents of files as datasets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, ClassVar

from distlab.data._dataset import Dataset
from distlab.data.plan.arguments import checked
from distlab.data.sources.files import Files, named_files, text_lines
from distlab.io._files import checked_compression
from distlab.io._records import tf_records


class _FileDataset(Dataset):
    """The contents of files, which are opened during an iteration.

    Attributes:
      PARSE: Yields the elements of an open file.
    """

    PARSE: ClassVar[staticmethod[[BinaryIO, str], Iterator[bytes]]]

    def __init__(
        self,
        filenames: Any,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
    ) -> None:
        """Opens no file yet.

        Args:
          filenames: One name or path, a list of them, or a `Dataset` of them.
          compression_type: `"GZIP"`, `"ZLIB"`, or None for uncompressed files.
          buffer_size: Ignored; accepted for compatibility with tf.data.
          num_parallel_reads: The number of files to read in turns. None reads one
            after the other.
          name: Ignored; accepted for compatibility with tf.data.

        Raises:
          InvalidArgumentError: An argument has another form.
          DataLossError: During iteration, a file is damaged or cut off.
        """
        del buffer_size, name
        names = filenames if isinstance(filenames, Dataset) else Dataset(named_files(filenames))
        (reads,) = checked(type(self).__name__, num_parallel_reads=num_parallel_reads)
        count = 1 if reads in {None, -1} else reads
        compression = checked_compression(compression_type)
        super().__init__(Files(names.plan, self.PARSE, compression, count), names.options())


class TextLineDataset(_FileDataset):
    r"""The lines of text files as `bytes`, without line ends.

    Example:
      >>> import pathlib
      >>> import distlab as dl
      >>> pathlib.Path("poem.txt").write_text("one\ntwo\n")
      8
      >>> print(*dl.data.TextLineDataset("poem.txt"))
      b'one' b'two'
    """

    PARSE = staticmethod(text_lines)


class TFRecordDataset(_FileDataset):
    """The records of TFRecord files as `bytes`.

    The checksums of each record's length and data are verified: a damaged or
    truncated file ends in a `DataLossError` that names the file and the record.

    Example:
      >>> import distlab as dl
      >>> with dl.io.TFRecordWriter("data.tfrecord") as writer:
      ...     writer.write(b"hello")
      >>> print(*dl.data.TFRecordDataset(["data.tfrecord"]))
      b'hello'
    """

    PARSE = staticmethod(tf_records)
