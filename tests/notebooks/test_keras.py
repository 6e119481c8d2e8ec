"""The notebook about Keras: `fit` learns on eight devices, and what it says holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import distlab as dl
from distlab.events import Loop, Sharding
from tests.notebooks.executed import text_of

NAME = "12_keras_watched"


def test_fit_learns_the_digits(executed: Any) -> None:
    said = text_of(executed, "fit")
    losses = [float(loss) for loss in re.findall(r"loss (\S+),", said)]
    assert len(losses) == 3
    assert losses[-1] < losses[0] / 3
    assert float(re.findall(r"(\S+)% of the test", said)[-1]) > 85


def test_the_run_has_keras_metrics_the_partial_batch_and_the_loop(
    executed: Any, folder: Path
) -> None:
    names = [line.split()[0] for line in text_of(executed, "metrics").splitlines()]
    assert sorted(names) == ["accuracy", "loss", "val_accuracy", "val_loss"]
    with dl.Run.open(folder / "runs" / "keras") as run:
        sizes = [e.sizes for e in run.events("sharding") if isinstance(e, Sharding)]
        states = [e.state for e in run.events("loop") if isinstance(e, Loop)]
    assert sizes[22] == [4, 4, 4, 4, 4, 4, 4, 1]
    assert states == ["running", "done"]


def test_a_loop_with_keras_objects_learns_and_is_recorded(executed: Any, folder: Path) -> None:
    right = [
        float(share)
        for share in re.findall(r"(\S+)% of the training digits", text_of(executed, "loop"))
    ]
    assert len(right) == 4
    assert right[-1] > 90
    with dl.Run.open(folder / "runs" / "keras-loop") as run:
        assert run.summary()["metrics"]["accuracy"] == pytest.approx(right[-1] / 100, abs=1e-3)
        assert run.summary()["steps"] == 4 * 23


def test_it_trains_as_one_device_and_is_saved_the_same(executed: Any) -> None:
    by_replicas, by_examples = re.findall(r"by (\d\S*)", text_of(executed, "weigh"))
    assert float(by_replicas) > 1e-4
    assert float(by_examples) < 1e-5
    told = [line.split("loss ")[1] for line in text_of(executed, "save").splitlines()]
    assert len(told) == 3
    assert len(set(told)) == 1
    (loss,) = re.findall(r" loss: (\S+)", text_of(executed, "change"))
    assert float(loss) < 2.0
