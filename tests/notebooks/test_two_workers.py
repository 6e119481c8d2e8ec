"""The notebook about two workers: they train together, one is killed, and both go on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import distlab as dl
from tests.notebooks.executed import cell, html_of, text_of

NAME = "09_two_workers"
STEPS = 56


def told(notebook: Any, cell_id: str) -> list[str]:
    """What the workers printed, sorted, without the lines of libraries."""
    outputs = [one for one in cell(notebook, cell_id).outputs if one.output_type == "stream"]
    lines = "".join(one.text for one in outputs if one.name == "stdout").splitlines()
    return sorted(line for line in lines if line.startswith("[worker-") and "[Gloo]" not in line)


def test_both_workers_have_own_replicas_and_one_loss(executed: Any) -> None:
    assert told(executed, "own") == [
        "[worker-0] own replicas: [0, 1] sum over all: 6",
        "[worker-1] own replicas: [2, 3] sum over all: 6",
    ]
    losses = {line.partition(f"steps 0 to {STEPS}, ")[2] for line in told(executed, "train")}
    assert len(losses) == 1
    assert re.fullmatch(r"loss 0\.\d{4}", losses.pop())


def test_the_recorded_run_has_the_devices_of_both(executed: Any, folder: Path) -> None:
    devices = [f"worker {worker} CPU:{device}" for worker in (0, 1) for device in (0, 1)]
    for view in ("batches", "busy"):
        assert re.findall(r"worker \d CPU:\d", text_of(executed, view)) == devices
    assert html_of(executed, "devices")
    with dl.Run.open(folder / "runs" / "whole") as run:
        assert run.summary()["steps"] == STEPS


def test_the_notebook_is_told_which_worker_was_killed(executed: Any) -> None:
    printed = [one.text for one in cell(executed, "dies").outputs if one.get("name") == "stdout"]
    assert re.search(r"Raised in the notebook: worker 1 on \S+: Its process has ended", printed[-1])
    assert text_of(executed, "lost").rstrip().endswith("worker 1 is lost)")


def test_after_a_restart_the_backup_gives_the_same_result(executed: Any) -> None:
    words = [line.split() for line in told(executed, "restart")]
    assert [line[:5] for line in words] == [
        [f"[worker-{worker}]", "steps", "20", "to", f"{STEPS},"] for worker in (0, 1)
    ]
    without, with_stop = map(float, re.findall(r"\d\.\d+", text_of(executed, "same")))
    assert with_stop == pytest.approx(without, abs=2e-6)
