"""The notebook about divided variables: bytes and losses that can be worked out otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import distlab as dl
from distlab.events import Placement
from tests.notebooks.executed import html_of, pictures, text_of

NAME = "14_a_model_larger_than_a_device"
SIZES = {"w0": 4 * 64 * 1024, "w1": 4 * 1024 * 1024, "w2": 4 * 1024 * 10}
ADAM = 3  # the weights and two moments


def state_of(executed: Any, cell: str) -> float:
    """The bytes that a cell says a device holds, in MB."""
    return float(text_of(executed, cell).partition("holds ")[2].partition(" MB")[0])


def test_division_changes_memory_and_no_loss(executed: Any) -> None:
    whole = ADAM * sum(SIZES.values()) / 1e6
    assert state_of(executed, "whole") == pytest.approx(whole, abs=0.01)
    assert state_of(executed, "divided") == pytest.approx(whole / 8, abs=0.01)
    split = ADAM * ((SIZES["w0"] + SIZES["w1"]) / 2 + SIZES["w2"]) / 1e6
    assert state_of(executed, "model-axis") == pytest.approx(split, abs=0.02)
    assert "largest difference of 28 losses: 0.0" in text_of(executed, "same")
    ends = {text_of(executed, cell).split(";")[0] for cell in ("whole", "divided", "change")}
    assert len(ends) == 1


def test_the_picture_shows_each_devices_part(executed: Any, folder: Path) -> None:
    shown = pictures(executed)[0]["text/html"]
    assert "1.69 MB a device in parts; 13.5 MB as whole copies" in shown
    assert 'title="replica 2: adam/0/mu/w1[256:384, 0:1024]"' in shown
    with dl.Run.open(folder / "runs" / "divided") as run:
        placed = {e.name: e for e in run.events("placement") if isinstance(e, Placement)}
    assert placed["w1"].spec == [["replica"], []]
    assert placed["w1"].bytes_per_device == [SIZES["w1"] // 8] * 8
    assert placed["adam/0/count"].layout == "replicated"


def test_gathers_and_scatters_send_what_the_sum_sent(executed: Any) -> None:
    lines = [line.split() for line in text_of(executed, "moves").splitlines()]
    sent: dict[str, dict[str, float]] = {}
    for line in lines:
        if len(line) == 1:
            kinds = sent.setdefault(line[0], {})
        else:
            kinds[line[0]] = kinds.get(line[0], 0) + float(line[1])
    ring = 7 / 8 * sum(SIZES.values()) / 1e6
    assert sent["runs/whole"] == {"all-reduce": pytest.approx(2 * ring, abs=0.001)}
    assert sent["runs/divided"] == {
        "all-gather": pytest.approx(ring, abs=0.002),
        "reduce-scatter": pytest.approx(ring, abs=0.002),
    }


def test_a_model_axis_divides_within_a_replica(executed: Any) -> None:
    shown = text_of(executed, "model-axis")
    assert "replica 4 \u00d7 model 2" in shown
    blocks = {line.split()[0]: line for line in shown.splitlines() if line.startswith("w")}
    assert "[64, 512]" in blocks["w0"]
    assert "[512, 1024]" in blocks["w1"]
    assert "whole, 8 along replica, model" in blocks["w2"]


def test_larger_meshes_are_counted_without_devices(executed: Any) -> None:
    shown = text_of(executed, "simulate")
    row = next(line for line in shown.splitlines() if line.startswith("data 64"))
    assert row.split()[5] == "256"
    arguments = SIZES["w0"] / 4 + SIZES["w1"] / 4 + 4 * 2048 * 64 / 64
    assert f"{arguments / 1e6:.2f} MB" in row
    assert "<table" in html_of(executed, "simulate")
