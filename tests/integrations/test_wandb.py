"""The logger of Weights & Biases, offline: its file holds what it was told."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from wandb.proto import wandb_internal_pb2

from distlab.errors import MissingExtraError
from distlab.io import decode_png, read_file
from distlab.loggers import WandB
from distlab.recording import RingRecorder, record
from tests.tracking.test_tensorboard import train

RECORD: Any = vars(wandb_internal_pb2)["Record"]
_BLOCK = 32_768
_HEAD = struct.Struct("<IHB")


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Offline, with all files in the test's folder."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb.teardown()  # what another test set up has its own folder
    yield tmp_path
    wandb.teardown()


def records(folder: Path) -> list[Any]:
    """Returns the messages of the only run below a folder: a log in LevelDB's format."""
    wandb.teardown()  # its service writes on after `finish`
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    data = path.read_bytes()
    found, parts, at = [], [], 7  # after W&B's own mark
    while at + _HEAD.size <= len(data):
        if _BLOCK - at % _BLOCK < _HEAD.size:  # the rest of a block that holds no record
            at += _BLOCK - at % _BLOCK
            continue
        _, length, kind = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        parts.append(data[at : at + length])
        at += length
        if kind in (1, 4):  # whole, or the last part
            message = RECORD()
            message.ParseFromString(b"".join(parts))
            found.append(message)
            parts = []
    return found


def history(found: list[Any]) -> list[dict[str, Any]]:
    """Returns the rows of the history, without W&B's own columns."""
    rows = []
    for record_ in found:
        if record_.WhichOneof("record_type") == "history":
            items = ((i.key or "/".join(i.nested_key), i) for i in record_.history.item)
            row = {key: json.loads(item.value_json) for key, item in items}
            rows.append({key: value for key, value in row.items() if not key.startswith("_")})
    return rows


def of_kind(found: list[Any], kind: str) -> list[Any]:
    return [getattr(one, kind) for one in found if one.WhichOneof("record_type") == kind]


def test_a_run_is_read_back(recorder: RingRecorder, tmp_path: Path) -> None:
    logger = WandB(project="digits")
    with record(None, name="first", loggers=[logger]) as run:
        train(run)
    found = records(tmp_path)
    (begun,) = of_kind(found, "run")
    assert (begun.project, begun.display_name) == ("digits", "first")
    config = {i.key or i.nested_key[0]: i for c in of_kind(found, "config") for i in c.update}
    facts = json.loads(config["distlab"].value_json)
    assert (facts["strategy"], facts["replicas"]) == ("MirroredStrategy", "3")
    rows = history(found)
    losses = [(row["distlab/step"], row["loss"]) for row in rows if "loss" in row]
    assert losses == [(0, 4575.0), (1, 8190.0)]
    assert any("`step` compiled in" in row.get("distlab/programs", "") for row in rows)
    assert all(0 <= row.get("distlab/busy/CPU:0", 0) <= 1 for row in rows)
    axes = {metric.name: metric.step_metric for metric in of_kind(found, "metric")}
    assert axes["loss"] == "distlab/step"
    place = "distlab/batch/replica 0/path"
    pictures = [row[place] for row in rows if place in row]
    assert len(pictures) == 2
    (files,) = tmp_path.glob("wandb/offline-run-*/files")
    sheet = decode_png(read_file(str(files / pictures[0])))
    assert sheet.shape[:2] == (4, 9)
    (ended,) = of_kind(found, "exit")
    assert ended.exit_code == 0


def test_steps_may_go_back(recorder: RingRecorder, tmp_path: Path) -> None:
    with record(None, loggers=[WandB(mode="offline")]) as run:
        for step in (7, 3, 5):
            run.log(step, **{"loss": float(step), "a*b": 1.0})
    rows = [row for row in history(records(tmp_path)) if "loss" in row]
    assert [(row["distlab/step"], row["loss"]) for row in rows] == [(7, 7.0), (3, 3.0), (5, 5.0)]


def test_the_active_run_is_logged_to_and_left_open(recorder: RingRecorder, tmp_path: Path) -> None:
    active = wandb.init(project="mine")
    with record(None, loggers=[WandB()]) as run:
        run.log(0, loss=1.0)
    active.log({"after": 2.0})
    with record(None, loggers=[WandB(active)]) as run:
        run.log(1, loss=3.0)
    active.finish()
    rows = history(records(tmp_path))
    assert [row["loss"] for row in rows if "loss" in row] == [1.0, 3.0]
    assert [row["after"] for row in rows if "after" in row] == [2.0]


def test_a_failed_run_has_its_message_and_exit_code(recorder: RingRecorder, tmp_path: Path) -> None:
    record(None, loggers=[WandB(project="digits")]).close("failed", "ValueError: no")
    found = records(tmp_path)
    (ended,) = of_kind(found, "exit")
    assert ended.exit_code == 1
    last = {i.key or i.nested_key[0]: i.value_json for s in of_kind(found, "summary")
            for i in s.update}  # fmt: skip
    assert json.loads(last["distlab/message"]) == "ValueError: no"


def test_without_wandb_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as missing:
        missing.setitem(sys.modules, "wandb", None)
        with pytest.raises(MissingExtraError, match=r"distlab\[loggers\]"):
            WandB()
