"""Files: lines, records, names, compression, and damage."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from distlab.data import Dataset, TextLineDataset, TFRecordDataset
from distlab.data._crc import masked_crc32c
from distlab.errors import InvalidArgumentError


def _record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return (
        head
        + struct.pack("<I", masked_crc32c(head))
        + data
        + struct.pack("<I", masked_crc32c(data))
    )


def _write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def test_the_checksum_is_crc32c() -> None:
    # The check value of CRC-32C is 0xe3069283 for "123456789"; masked as TFRecord does.
    crc = 0xE3069283
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked_crc32c(b"123456789") == masked


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
    records = _write(tmp_path / "b", pack(_record(b"x" * 1000) + _record(b"")))
    assert list(TFRecordDataset(records, compression)) == [b"x" * 1000, b""]


def test_several_files_one_after_the_other_or_in_turns(tmp_path: Path) -> None:
    names = [_write(tmp_path / f"{n}.txt", f"{n}0\n{n}1\n".encode()) for n in range(3)]
    assert list(TextLineDataset(names)) == [b"00", b"01", b"10", b"11", b"20", b"21"]
    in_turns = TextLineDataset(names, num_parallel_reads=2)
    assert list(in_turns) == [b"00", b"10", b"01", b"11", b"20", b"21"]


def test_damaged_record_files_are_told_from_good_ones(tmp_path: Path) -> None:
    good = _record(b"first") + _record(b"second")
    with pytest.raises(InvalidArgumentError, match="at byte 21"):
        list(TFRecordDataset(_write(tmp_path / "a", good[:-30] + b"?" * 30)))
    with pytest.raises(InvalidArgumentError, match="cut off: the record at byte 21"):
        list(TFRecordDataset(_write(tmp_path / "b", good[:-1])))
    with pytest.raises(InvalidArgumentError, match="not a TFRecord file"):
        list(TFRecordDataset(_write(tmp_path / "c", gzip.compress(good))))
    with pytest.raises(InvalidArgumentError, match="not a TFRecord file"):
        list(TFRecordDataset(_write(tmp_path / "d", b"short")))


def test_missing_files_are_told_when_they_are_read(tmp_path: Path) -> None:
    dataset = TextLineDataset(str(tmp_path / "none.txt"))
    with pytest.raises(FileNotFoundError, match=r"none\.txt"):
        list(dataset)


def test_bad_arguments_are_refused_at_once() -> None:
    with pytest.raises(InvalidArgumentError, match="compression_type"):
        TextLineDataset("a", compression_type="LZMA")
    with pytest.raises(InvalidArgumentError, match="file name"):
        TextLineDataset([3])
    with pytest.raises(InvalidArgumentError, match="num_parallel_reads"):
        TFRecordDataset("a", num_parallel_reads=0)


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
