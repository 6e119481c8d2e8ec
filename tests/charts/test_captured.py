"""The chart of a capture shows each device's spans, however many there were."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.charts import CapturedSpans
from distlab.charts.captured import ACTIVITIES, COLOURS, longest_in_cells
from distlab.events import Capture
from distlab.folds import Folds
from distlab.folds.devices import Computing

MS = 1_000_000


def packed(*rows: tuple[int, int, int]) -> bytes:
    """Spans in milliseconds: begin, length, sort."""
    return np.array([(b * MS, n * MS, sort) for b, n, sort in rows], "<i8").tobytes()


def capture() -> Capture:
    return Capture(
        time_ns=110 * MS,
        strategy=0,
        start_ns=10 * MS,
        steps=2,
        asked_by="user",
        devices=["CPU:0", "CPU:1"],
        compute_ns=[90 * MS, 20 * MS],
        waiting_ns=[0, 70 * MS],
        copy_ns=[5 * MS, 0],
        idle_ns=[5 * MS, 10 * MS],
        spans=[packed((0, 90, 0), (95, 5, 2)), packed((0, 20, 0), (20, 70, 1))],
        spans_left_out=0,
        profile_bytes=1_000,
        cost_ns=1,
    )


def test_the_capture_of_most_steps_is_shown_unless_another_is_chosen() -> None:
    folds = Folds()
    steps = [3, 5, 5, 0, *[1] * 40]
    folds.add(
        [
            msgspec.structs.replace(capture(), steps=n, start_ns=(10 + k) * MS, asked_by="recorder")
            for k, n in enumerate(steps)
        ]
    )
    shown = folds.capture()
    assert (shown["number"], shown["steps"], len(shown["numbers"])) == (2, 5, 32)
    assert shown["numbers"][:2] == [2, 13]
    assert folds.capture(20)["steps"] == 1
    assert folds.capture(0)["number"] == 2  # no longer kept
    folds.add([capture()])
    assert folds.capture()["asked_by"] == "user"


def test_each_span_is_a_bar_in_its_devices_row() -> None:
    folds = Folds()
    folds.add([capture()])
    chart = CapturedSpans()
    chart.update(folds.columns("captures"))
    assert chart.source.data["device"] == ["CPU:0", "CPU:1"]
    assert chart.source.data["amount"] == ["90 % · 0 %", "20 % · 70 %"]
    assert chart.source.data["length"].tolist() == [100, 100]
    spans = chart.spans.data
    drawn = zip(spans["y"], spans["begin"], spans["end"], spans["what"], strict=True)
    assert [tuple(row) for row in drawn] == [
        (0, 0, 90, "computing"),
        (0, 95, 100, "copying"),
        (-1, 0, 20, "computing"),
        (-1, 20, 90, "waiting for others"),
    ]
    assert [COLOURS[ACTIVITIES.index(what)] for what in spans["what"]] == spans["color"]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=40),
    st.integers(1, 30),
)
@settings(deadline=None)
def test_what_prevails_covers_about_as_much(parts: list[tuple[int, int]], cells: int) -> None:
    rows, at = [], 0
    for length, sort in parts:
        if sort < 3:
            rows.append((at, at + length, sort))
        at += length
    spans = np.array(rows, float).reshape(-1, 3)
    found = longest_in_cells(spans, at, cells)
    assert (found[1:, 0] >= found[:-1, 1] - 1e-9).all()
    for sort in range(3):
        exact = sum(end - begin for begin, end, of in rows if of == sort)
        drawn = float((found[found[:, 2] == sort, 1] - found[found[:, 2] == sort, 0]).sum())
        # Each border between two sorts may move by a cell.
        assert drawn == pytest.approx(exact, abs=at / cells * (len(parts) + 1))


def test_a_slow_device_computes_no_more_than_its_capture_shows() -> None:
    """Others were kept from their cores, and computed for three times as long as their work."""
    times = {"compute_ns": [90 * MS, 18 * MS], "waiting_ns": [0, 72 * MS]}
    shares = Computing()
    shares.add(msgspec.structs.replace(capture(), **times, work_ns=[45 * MS, 3 * MS], work_steps=2))
    assert shares.of(0, 2) == pytest.approx([0.98, 6 / 90], abs=0.01)
