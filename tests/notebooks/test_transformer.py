"""The transformer learns: its losses, and what it writes, against the text itself."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distlab as dl
from distlab.events import Metric, Sharding
from tests.notebooks.executed import html_of, pictures, text_of

NAME = "08_character_transformer"
STEPS = 300


@pytest.fixture(scope="module")
def text() -> str:
    """The library's text, as far as the notebook reads it."""
    found = ""
    for file in sorted(Path(os.__file__).parent.glob("*.py")):
        source = file.read_text(encoding="utf-8", errors="ignore")
        found += source.encode("ascii", "ignore").decode()
        if len(found) > 500_000:
            return found
    raise AssertionError("the standard library is smaller than that")


def losses(folder: Path) -> list[float]:
    with dl.Run.open(folder / "runs" / "transformer") as run:
        return [event.values["loss"] for event in run.events("metric") if isinstance(event, Metric)]


def test_it_reads_the_library_and_learns_below_2_5_nats(executed: Any, text: str) -> None:
    said = text_of(executed, "text")
    assert f"{len(text):,} characters" in said
    assert f"{len(set(text))} different ones" in said
    width = 64
    numbers = 2 * len(set(text)) * width + width * width + 2 * 12 * width * width
    assert f"{numbers:,} numbers to learn" in text_of(executed, "model")
    found = re.search(r"before: ([\d.]+) nats +after: ([\d.]+) nats", text_of(executed, "after"))
    assert found is not None
    before, after = map(float, found.groups())
    assert before == pytest.approx(np.log(len(set(text))), abs=0.01)
    assert after < 2.5


def test_the_recorded_loss_falls_as_it_is_printed(executed: Any, folder: Path) -> None:
    recorded = losses(folder)
    assert len(recorded) == STEPS
    assert np.mean(recorded[-20:]) < 2.5 < 4 < recorded[0]
    printed = re.findall(r"step +(\d+): loss ([\d.]+)", text_of(executed, "train"))
    assert [int(step) for step, _ in printed] == [*range(0, STEPS, 100), STEPS - 1]
    for step, loss in printed:
        assert float(loss) == pytest.approx(recorded[int(step)], abs=0.006)


def test_each_of_eight_replicas_reads_four_passages_a_step(executed: Any, folder: Path) -> None:
    with dl.Run.open(folder / "runs" / "transformer") as run:
        told = [event for event in run.events("sharding") if isinstance(event, Sharding)]
    assert [event.sizes for event in told] == [[4] * 8] * STEPS


def test_a_picture_of_the_run_and_one_of_the_loss_are_left(executed: Any) -> None:
    live, _ = pictures(executed)
    assert f"Batch {STEPS - 1} (of {STEPS} so far, from 0): 32 examples" in live["text/plain"]
    assert "<img" in live["text/html"]
    page = html_of(executed, "after")
    assert "Loss" in page
    assert "srcdoc" in page
