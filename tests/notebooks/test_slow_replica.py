"""Each planted fault is named in the notebook, and its advice is gone when it was mended."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distlab as dl
from distlab.events import Capture, Compile, Sharding
from tests.notebooks.executed import html_of, text_of

NAME = "07_find_the_slow_replica"


def captured(folder: Path, name: str) -> Capture:
    """The one capture of a run."""
    with dl.Run.open(folder / "runs" / name) as run:
        (capture,) = run.events("capture")
    assert isinstance(capture, Capture)
    return capture


def compilations(folder: Path, name: str) -> int:
    """How many programs a run's step needed."""
    with dl.Run.open(folder / "runs" / name) as run:
        begin = next(iter(run.events("run"))).time_ns
        # Those from before the recording are in it too, and belong to other functions.
        return sum(
            isinstance(event, Compile) and event.function == "step" and event.time_ns > begin
            for event in run.events("compile")
        )


def test_a_slow_replica_is_named_until_it_does_as_much(executed: Any, folder: Path) -> None:
    said = text_of(executed, "straggler-advice")
    assert "1. slow_replica: Replica 5 (CPU:5) has" in said
    assert "Reduce its work" in said
    capture = captured(folder, "straggler")
    assert np.argmax(capture.compute_ns) == 5
    assert np.argmin(capture.waiting_ns) == 5
    assert "slow_replica" not in text_of(executed, "straggler-fixed")
    before, after = captured(folder, "straggler"), captured(folder, "straggler-fixed")
    ratios = [
        capture.compute_ns[5] / np.median(np.delete(capture.compute_ns, 5))
        for capture in (before, after)
    ]
    assert ratios[0] > 4 * ratios[1]
    assert re.search(r"^slow_replica: replica 2$", text_of(executed, "your-turn"), re.MULTILINE)


@pytest.mark.parametrize(
    ("cell_id", "name"), [("picture", "straggler"), ("your-turn", "turn")], ids=str
)
def test_the_picture_is_that_of_the_capture_and_needs_no_network(
    executed: Any, folder: Path, cell_id: str, name: str
) -> None:
    capture = captured(folder, name)
    whole = capture.time_ns - capture.start_ns
    rows = re.findall(
        r"^(CPU:\d) +(\d+)% +(\d+)% +(\d+)%", text_of(executed, cell_id), re.MULTILINE
    )
    assert [row[0] for row in rows] == capture.devices
    for column, spent in ((1, capture.compute_ns), (2, capture.waiting_ns), (3, capture.idle_ns)):
        shown = [int(row[column]) for row in rows]
        np.testing.assert_allclose(shown, 100 * np.array(spent) / whole, atol=0.51)
    page = html.unescape(html_of(executed, cell_id))
    assert "What each device did in a capture" in page
    assert "waiting for others" in page
    assert re.findall(r"""<(?:script|link)[^>]*(?:src|href)=""", page) == []


def test_a_slow_source_is_named_until_it_is_read_in_whole_batches(executed: Any) -> None:
    said = text_of(executed, "input")
    assert re.search(r"^input_bound: dataset at cell \d+, line \d+$", said, re.MULTILINE)
    assert "most of it for its source" in said
    assert "map whole batches" in said
    assert "input_bound" not in text_of(executed, "input-fixed")


def test_lengths_that_change_are_named_until_they_are_padded(executed: Any, folder: Path) -> None:
    said = text_of(executed, "recompilation")
    assert re.search(r"^recompilation: argument tokens$", said, re.MULTILINE)
    assert "compiled 12 times for 12 steps" in said
    assert "recompilation" not in text_of(executed, "recompilation-fixed")
    assert compilations(folder, "shapes") == len(range(5, 17))
    assert compilations(folder, "shapes-fixed") == 1


def test_empty_replicas_are_named_until_the_batch_fits(executed: Any, folder: Path) -> None:
    said = text_of(executed, "uneven")
    assert re.search(r"^uneven_batch: replicas 5 to 7$", said, re.MULTILINE)
    assert "8 or 16 instead of 10" in said
    assert "uneven_batch" not in text_of(executed, "uneven-fixed")
    for name, expected in (("uneven", [2, 2, 2, 2, 2, 0, 0, 0]), ("uneven-fixed", [2] * 8)):
        with dl.Run.open(folder / "runs" / name) as run:
            events = [event for event in run.events("sharding") if isinstance(event, Sharding)]
        assert {tuple(event.sizes) for event in events} == {tuple(expected)}
