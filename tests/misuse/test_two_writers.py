"""Two writers of one file, whose records would mix."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import distlab as dl
from distlab.errors import ContextError

Writer = dl.io.TFRecordWriter


def read(path: Path) -> list[bytes]:
    return [bytes(record) for record in dl.data.TFRecordDataset(path)]


def test_a_second_writer_is_refused_while_the_first_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"what was there before")
    linked, hard = tmp_path / "linked", tmp_path / "hard"
    linked.symlink_to(path)
    hard.hardlink_to(path)
    monkeypatch.chdir(tmp_path)
    with Writer(path) as writer:
        writer.write("one")
        writer.flush()
        for name in (path, str(path), b"records", "../" + tmp_path.name + "/records", linked, hard):
            with pytest.raises(ContextError, match=r"Another TFRecordWriter .* open.* Leave its"):
                Writer(name)
        Writer(tmp_path / "other").close()
        writer.write("two")
    assert read(path) == [b"one", b"two"]
    with Writer(linked) as writer:
        writer.write("three")
    assert read(path) == [b"three"]


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
