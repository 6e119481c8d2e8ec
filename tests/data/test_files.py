"""Files: lines, records, names, and compression."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import pytest

from distlab.data import Dataset, TextLineDataset, TFRecordDataset
from distlab.errors import DataLossError, InvalidArgumentError
from distlab.io._records import record_of


def _write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def test_lines_come_without_their_ends(tmp_path: Path) -> None:
    name = _write(tmp_path / "a.txt", b"one\r\n\ntwo\nlast")
    for filenames in (name, Path(name), name.encode(), [name], Dataset.from_tensor_slices([name])):
        assert list(TextLineDataset(filenames)) == [b"one", b"", b"two", b"last"]


@pytest.mark.parametrize(
    ("compression", "pack"), [("GZIP", gzip.compress), ("ZLIB", zlib.compress), ("", bytes)]
)
def test_compressed_files(tmp_path: Path, compression: str, pack: Any) -> None:
    text = _write(tmp_path / "a", pack(b"one\ntwo\n"))
    assert list(TextLineDataset(text, compression)) == [b"one", b"two"]
    records = _write(tmp_path / "b", pack(record_of(b"x" * 1000) + record_of(b"")))
    assert list(TFRecordDataset(records, compression)) == [b"x" * 1000, b""]


@pytest.mark.parametrize(
    ("compression", "pack"), [("GZIP", gzip.compress), ("ZLIB", zlib.compress)]
)
def test_compressed_text_that_is_cut_off_raises(
    tmp_path: Path, compression: str, pack: Any
) -> None:
    packed = pack(b"one\ntwo\n")
    cut = _write(tmp_path / "cut", packed[:-3])
    with pytest.raises(DataLossError, match=r"cut is damaged.*compression_type"):
        list(TextLineDataset(cut, compression))
    with pytest.raises(DataLossError, match="plain is damaged, or is not compressed"):
        list(TextLineDataset(_write(tmp_path / "plain", b"one\ntwo\n"), compression))


def test_several_files_one_after_the_other_or_in_turns(tmp_path: Path) -> None:
    names = [_write(tmp_path / f"{n}.txt", f"{n}0\n{n}1\n".encode()) for n in range(3)]
    assert list(TextLineDataset(names)) == [b"00", b"01", b"10", b"11", b"20", b"21"]
    in_turns = TextLineDataset(names, num_parallel_reads=2)
    assert list(in_turns) == [b"00", b"10", b"01", b"11", b"20", b"21"]


def test_listed_files_are_shuffled_anew_unless_told_otherwise(tmp_path: Path) -> None:
    names = sorted(_write(tmp_path / f"{n:02}.txt", b"") for n in range(20))
    pattern = str(tmp_path / "*.txt")
    listed = [name.decode() for name in Dataset.list_files(pattern, shuffle=False)]
    assert listed == names
    dataset = Dataset.list_files(pattern, seed=1)
    first, second = list(dataset), list(dataset)
    assert sorted(first) == sorted(second)
    assert first != second
    with pytest.raises(InvalidArgumentError, match="No file matches"):
        Dataset.list_files(str(tmp_path / "*.csv"))
