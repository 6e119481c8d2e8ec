"""Files as datasets: list_files, and the contents of the files that a dataset names."""

from __future__ import annotations

import functools
import glob
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from distlab.data.plan.engine import Element, Reader, Replayed
from distlab.data.plan.plan import UNKNOWN_CARDINALITY, Opener, Reading, Unary
from distlab.data.plan.spec import TensorSpec
from distlab.data.sources import arrays as _arrays
from distlab.data.transforms.interleave import InterleaveReader
from distlab.errors import DataLossError, InvalidArgumentError
from distlab.io._files import COMPRESSION_ERRORS, open_file, path_of
from distlab.text.shown import shown


@dataclass(frozen=True, eq=False)
class Files(Unary):
    """The contents of the files that its input names, `at_a_time` of them in turns."""

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

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the files, `at_a_time` of them in turns."""
        names = open_input(self.input, reading)
        return InterleaveReader(names, self._open, self.at_a_time, 1)

    def _open(self, number: int, name: Element) -> Reader:
        del number
        return Replayed(functools.partial(self._elements, path_of(name.value)))

    def _elements(self, path: str) -> Iterator[Element]:
        count = 0
        try:
            with open_file(path, self.compression) as file:
                for value in self.parse(file, path):
                    yield Element(value, None)
                    count += 1
        except COMPRESSION_ERRORS as error:
            raise DataLossError(
                f"{path} is damaged, or is not compressed as compression_type says: reading after "
                f"{count} elements failed with: {error}. Set the right compression_type, or write "
                "the file again."
            ) from error


def text_lines(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Yields the lines without line ends and, as TensorFlow, without carriage returns."""
    del path
    for line in file:
        yield line.removesuffix(b"\n").replace(b"\r", b"")


def named_files(filenames: Any) -> _arrays.ArraySource:
    """Returns the source of one file name or a list of file names."""
    names = [filenames] if isinstance(filenames, str | bytes | os.PathLike) else filenames
    return _arrays.rows_of(np.array([path_of(name) for name in _flat(names)], dtype=np.str_))


def matching_files(file_pattern: Any) -> _arrays.ArraySource:
    """Returns the source of the sorted names of files that match one of the patterns."""
    # Not Path.glob, which takes no absolute patterns.
    found = {
        name
        for pattern in _flat(file_pattern)
        for name in glob.glob(path_of(pattern))  # noqa: PTH207
    }
    if not found:
        raise InvalidArgumentError(
            f"No file matches {shown(file_pattern)}. Write a pattern such as data/*.tfrecord."
        )
    return _arrays.rows_of(np.array(sorted(found), dtype=np.str_))


def _flat(names: Any) -> list[Any]:
    try:
        found: list[Any] = np.asarray(names, dtype=object).ravel().tolist()
    except Exception:  # noqa: BLE001 - deleted arrays and random keys have errors of their own
        return [names]
    return found
