"""A path that begins with `~` is one of the home folder, for each verb that takes a path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab_dashboard.library import library_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home, present = tmp_path / "home", tmp_path / "present"
    for folder in home, present:
        folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(present)
    return home


def _records() -> None:
    with dl.io.TFRecordWriter("~/made.tfrecord") as writer:
        writer.write(b"one")
    assert list(dl.data.TFRecordDataset("~/made.tfrecord")) == [b"one"]
    (found,) = dl.data.Dataset.list_files("~/*.tfrecord")
    assert found.decode() == str(Path.home() / "made.tfrecord")


def _saved() -> None:
    dl.data.Dataset.range(3).save("~/made")
    assert [int(x) for x in dl.data.Dataset.load("~/made")] == [0, 1, 2]


def _recorded() -> None:
    dl.record("~/made").close()
    with dl.Run.open("~/made") as run:
        run.export("~/made.jsonl")
    library = library_of("~")
    assert [run.name for run in library.summaries()] == ["made"]


_VERBS: dict[str, Callable[[], Any]] = {
    "record, Run.open, export and a dashboard": _recorded,
    "record's TensorBoard": lambda: dl.record(None, tensorboard="~/made").close(),
    "cache": lambda: list(dl.data.Dataset.range(2).cache("~/made")),
    "save and load": _saved,
    "TFRecordWriter, TFRecordDataset and list_files": _records,
    "Checkpoint": lambda: dl.train.Checkpoint(v=dl.Variable(1.0)).save("~/made"),
    "export": lambda: dl.export(lambda x: x, jnp.ones(2)).save("~/made.dlx"),
}


@pytest.mark.parametrize("call", _VERBS.values(), ids=_VERBS.keys())
def test_a_path_in_the_home_folder(call: Callable[[], Any], home: Path) -> None:
    call()
    assert [path.name for path in home.iterdir() if path.name.startswith("made")]
    assert list(Path().iterdir()) == []
