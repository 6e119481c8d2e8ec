"""Two writers of one file, whose records would mix."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import distlab as dl
from distlab.errors import ContextError, InvalidArgumentError

Writer = dl.io.TFRecordWriter


def read(path: Path, compression: str | None = None) -> list[bytes]:
    return [bytes(record) for record in dl.data.TFRecordDataset(path, compression)]


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
def test_a_second_writer_is_refused_while_the_first_is_open(
    compression: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"what was there before")
    linked, hard = tmp_path / "linked", tmp_path / "hard"
    linked.symlink_to(path)
    hard.hardlink_to(path)
    monkeypatch.chdir(tmp_path)
    with Writer(path, compression) as writer:
        writer.write("one")
        writer.flush()
        for name in (path, str(path), b"records", "../" + tmp_path.name + "/records", linked, hard):
            with pytest.raises(ContextError, match=r"Another TFRecordWriter .* open.* Leave its"):
                Writer(name, compression)
        Writer(tmp_path / "other").close()
        writer.write("two")
    assert read(path, compression) == [b"one", b"two"]
    with Writer(linked, compression) as writer:
        writer.write("three")
    assert read(path, compression) == [b"three"]


def test_a_writer_that_was_dropped_or_failed_is_not_open(tmp_path: Path) -> None:
    path = tmp_path / "records"
    with pytest.raises(InvalidArgumentError):
        Writer(path, "LZMA")
    with pytest.raises(FileNotFoundError):
        Writer(tmp_path / "no" / "records")
    with pytest.raises(IsADirectoryError):
        Writer(tmp_path)
    cycle: list[Any] = [Writer(path, "ZLIB")]
    cycle.append(cycle)
    gc.disable()
    try:
        del cycle
        with pytest.warns(ResourceWarning, match="unclosed file"):
            Writer(path).close()
    finally:
        gc.enable()
    assert read(path) == []


def test_a_file_that_was_moved_away_makes_room(tmp_path: Path) -> None:
    path = tmp_path / "records"
    with Writer(path) as first:
        path.rename(tmp_path / "old")
        with Writer(path) as second:
            second.write("new")
        first.write("old")
    assert (read(path), read(tmp_path / "old")) == ([b"new"], [b"old"])


def test_what_is_no_file_is_shared() -> None:
    with Writer(os.devnull) as one, Writer(os.devnull) as other:
        one.write("a")
        other.write("b")


def test_of_many_threads_one_opens_a_file(tmp_path: Path) -> None:
    opened: list[Any] = []
    refused: list[ContextError] = []
    together = threading.Barrier(8)

    def open_it() -> None:
        together.wait(60)
        try:
            opened.append(Writer(tmp_path / "records"))
        except ContextError as error:
            refused.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(opened), len(refused)) == (1, 7)
    opened[0].close()


FORKS = """
import os
import distlab as dl

writer = dl.io.TFRecordWriter("records")
child = os.fork()
if child == 0:
    code = 1
    try:
        dl.io.TFRecordWriter("records").close()
        code = 0
    finally:
        os._exit(code)
print(os.waitpid(child, 0)[1])
try:
    dl.io.TFRecordWriter("records")
except dl.errors.ContextError:
    print("refused")
"""


def test_a_forked_process_has_no_writers_of_its_parent(tmp_path: Path) -> None:
    program = [sys.executable, "-c", FORKS]
    ended = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["0", "refused"]
