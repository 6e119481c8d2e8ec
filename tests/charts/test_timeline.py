"""The timeline draws cells for much time, single steps for little, and nothing unmeasured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distlab.charts import StepTimeline
from distlab.charts._lane_cells import LEVELS, palette
from distlab.charts._lane_spans import CALL, EVEN, ODD
from distlab.events import Event, Strategy
from distlab.folds import Folds, window
from tests.folds.test_timeline import call, ready, sample
from tests.several_workers import in_order, several
from tests.synthetic import START_NS, beginning


def shown(events: list[Event], devices: int = 2) -> tuple[StepTimeline, Folds]:
    folds = Folds()
    folds.add([*beginning(devices), *events])
    chart = StepTimeline()
    chart.update(folds.columns("timeline"))
    return chart, folds


def steady(count: int, devices: int = 2, *, apart_ms: float = 10) -> list[Event]:
    """Steps that take 0.6 of the time, all watched."""
    events: list[Event] = []
    for number in range(count):
        at = number * apart_ms
        events.append(call(number, at, took_ms=apart_ms / 10))
        events.append(ready(number, *[at + 0.6 * apart_ms] * devices))
        events.append(sample(at, at + apart_ms, *[0.6 * apart_ms] * devices))
    return events


def steps_of(chart: StepTimeline) -> set[int]:
    data = chart.spans.data
    drawn = np.isin(data["sort"], (EVEN, ODD))
    return {int(number) for number in np.asarray(data["number"])[drawn]}


def look_at(chart: StepTimeline, low: float, high: float) -> None:
    chart.x_range.start, chart.x_range.end = low, high
    chart.redraw()


def test_each_device_has_a_lane_below_input_and_python() -> None:
    chart, _ = shown(steady(5))
    data = chart.source.data
    assert data["lane"] == ["input", "python", "CPU:0", "CPU:1"]
    assert (np.diff(data["y"]) < 0).all()
    assert data["amount"] == ["0 %", "10 %", "60 %", "60 %"]
    folds, envelopes = Folds(), in_order(several(10, workers=2, replicas=4))
    folds.add([one.event for one in envelopes], [one.process for one in envelopes])
    chart.update(folds.columns("timeline"))
    assert chart.source.data["label"] == [
        *("input", "worker 0 python", "worker 0 CPU:0", "worker 0 CPU:1"),
        *("worker 1 CPU:0", "worker 1 CPU:1"),
    ]
    evil = Strategy(time_ns=START_NS, strategy=0, name="S", devices=["$$x$$", "a\nb"])
    chart, _ = shown([evil, *steady(2)])
    assert chart.source.data["lane"][2:] == ["$\u200b$x$\u200b$", "a b"]


def test_few_steps_are_spans_with_their_own_times() -> None:
    chart, _ = shown([call(0, 10), call(1, 12), ready(0, 20, 30), ready(1, 40, 41)])
    data = chart.spans.data
    lanes = dict(zip(chart.source.data["y"], chart.source.data["lane"], strict=True))
    rows = [
        (lanes[y], int(number), round(begin * 1e3, 3), round(end * 1e3, 3))
        for y, number, begin, end in zip(
            data["y"], data["number"], data["begin"], data["end"], strict=True
        )
    ]
    assert rows == [
        ("python", 0, 10, 11),
        ("python", 1, 12, 13),
        ("CPU:0", 0, 10, 20),
        ("CPU:1", 0, 10, 30),
        ("CPU:0", 1, 20, 40),
        ("CPU:1", 1, 30, 41),
    ]
    assert data["sort"].tolist() == [CALL, CALL, EVEN, EVEN, ODD, ODD]
    assert _named(chart, "timeline_numbers").data["text"] == ["0", "0", "1", "1"]


def test_what_is_sent_is_bounded_and_many_devices_share_lanes() -> None:
    for devices, seconds in ((8, 36_000), (1_024, 1)):
        chart, _ = shown(steady(200, devices, apart_ms=5 * seconds), devices)
        sources = chart.root.select({"type": type(chart.source)})
        assert sum(len(next(iter(source.data.values()))) for source in sources) <= 6_000
        images = [*chart.cells.data["image"], *chart.under.data["image"]]
        assert sum(image.size for image in images) <= 20_000
        assert len(chart.source.data["lane"]) == min(devices, 64) + 2
    texts = _named(chart, "timeline_note").data["text"]
    assert any(text.startswith("1\u202f024 devices in 64 rows of 16") for text in texts)
    assert chart.source.data["lane"][2] == "CPU:0 to CPU:15"


def test_what_was_not_watched_is_neither_busy_nor_idle() -> None:
    chart, _ = shown([call(0, 0), ready(0, 80, 80), sample(0, 100, 80, 80), call(1, 200)])
    watched = _named(chart, "timeline_watched").data
    device = watched["y"] == chart.source.data["y"][2]
    assert watched["begin"][device] == pytest.approx([0.0])
    assert watched["end"][device] == pytest.approx([0.1])
    line = next(
        image[0]
        for y, image in zip(chart.under.data["y"], chart.under.data["image"], strict=True)
        if y < 0
    )
    cells = len(line)
    assert palette()[int(line[int(0.75 * cells)])] == "#00000000"
    assert line[int(0.25 * cells)] > 2 * LEVELS


def test_a_device_is_not_idle_while_a_steps_end_is_unknown() -> None:
    events = [
        *(call(0, 0), ready(0, 10, 10), call(1, 40), call(2, 60), ready(2, 70, 70)),
        *(sample(0, 100, 50, 50), call(3, 150)),
    ]
    chart, _ = shown(events)
    watched = _named(chart, "timeline_watched").data
    device = watched["y"] == chart.source.data["y"][2]
    assert watched["begin"][device] == pytest.approx([0.0, 0.06])
    assert watched["end"][device] == pytest.approx([0.04, 0.1])


def test_of_a_long_run_the_newest_steps_are_at_hand_for_zooming() -> None:
    chart, _ = shown(steady(3_000))
    assert max(steps_of(chart)) == 2_999
    assert len(steps_of(chart)) == 1_333
    assert chart.cells.data["x"][0] == 0
    assert chart.under.data["x"][0] == pytest.approx(16.67, abs=0.1)  # instead of those


@pytest.mark.slow
def test_farther_back_a_closer_look_is_wanted_and_shown() -> None:
    events = steady(6_000)
    chart, _ = shown(events)
    look_at(chart, 5.0, 5.1)
    assert steps_of(chart) == set()
    wanted = chart.wanted()
    assert wanted == pytest.approx((4.8, 5.3))  # and the 20 steps around
    assert wanted is not None
    chart.zoom(window([*beginning(2), *events], START_NS, *wanted))
    assert {500, 505, 510} <= steps_of(chart)
    assert chart.wanted() is None
    look_at(chart, 0.0, 60.0)
    assert chart.visible is None
    assert max(steps_of(chart)) == 5_999


@pytest.mark.slow
def test_a_closer_look_at_too_many_steps_has_finer_cells() -> None:
    events = steady(16_000, apart_ms=1)
    chart, _ = shown(events)
    look_at(chart, 6.0, 10.0)
    wanted = chart.wanted()
    assert wanted == pytest.approx((4.0, 12.0))
    assert wanted is not None
    before = chart.cells.data["dw"][0] / chart.cells.data["image"][0].size
    chart.zoom(window([*beginning(2), *events], START_NS, *wanted))
    widths = [
        width / image.size
        for width, image in zip(chart.cells.data["dw"], chart.cells.data["image"], strict=True)
    ]
    assert min(widths) < before / 1.9
    assert steps_of(chart) == set()


def _named(chart: StepTimeline, name: str) -> Any:
    return next(model for model in chart.root.references() if model.name == name)
