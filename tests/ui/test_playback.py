"""Parts of a run, without a browser: a page shows another moment as it was then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.events import Metric, Step
from distlab.folds import Folds
from distlab.page.feed import Feed
from distlab.page.view import View
from distlab.recording import Run as RecordedRun
from distlab.runs.run_file import RunFile
from distlab_dashboard.playback import Playback
from distlab_dashboard.served_run import ServedRun
from distlab_dashboard.time_slice import TimeSlice, events_between
from tests.patience import LIMIT_SECONDS, wait_until
from tests.synthetic import START_NS, ListSource, whole_run
from tests.ui.conftest import ended

FAR = 1 << 62


def stored(folder: Path, events: list[Any]) -> RecordedRun:
    file = RunFile(folder, "stored")
    for start in range(0, len(events), 50):
        file.write(events[start : start + 50])
    file.close()
    return RecordedRun.open(folder)


@pytest.fixture
def source() -> ListSource:
    """A run of 60 steps in 0.8 s."""
    return ended(whole_run(60))


@contextmanager
def feeding(source: Any) -> Iterator[Feed]:
    run = ServedRun(source)
    run.start()
    wait_until(lambda: run.feed.caught_up)
    yield run.feed
    run.stop()


@pytest.fixture
def feed(source: ListSource) -> Iterator[Feed]:
    with feeding(source) as made:
        yield made


def then(at_s: float) -> Folds:
    """Returns the folds of a moment, read in one go."""
    folds = Folds()
    end = START_NS + round(at_s * 1e9)
    folds.add([event for event in whole_run(60) if event.time_ns <= end])
    return folds


def settled(playback: Playback) -> Folds:
    """Returns the folds once they are read, as a page does that asks for them again and again."""
    found = playback.folds()

    def read() -> bool:
        nonlocal found
        found = playback.folds()
        return not playback.facts()["time_reading"]

    wait_until(read)
    return found


@pytest.mark.parametrize("place", ["memory", "file"])
def test_a_moment_shows_what_was_known_then(source: ListSource, tmp_path: Path, place: str) -> None:
    run = stored(tmp_path / "run", source.events) if place == "file" else source
    with feeding(run) as feed:
        playback = Playback(feed)
        assert playback.folds() is feed.folds  # which all pages share
        assert playback.facts()["time_at"] is None
        assert playback.facts()["time_end"] == pytest.approx(feed.length_s, abs=1e-3)
        found: list[Folds] = []
        for at in (0.3, 0.555, 100.0, 0.2, 0.0):
            playback.choose(View(at=at))
            found.append(settled(playback))
            expected = then(at)
            for name in ("steps", "metrics", "placement"):
                key = {"steps": "steps", "metrics": "last", "placement": "name"}[name]
                assert found[-1].columns(name)[key] == expected.columns(name)[key]
            detail, wanted = found[-1].batch(), expected.batch()
            assert (detail and detail["number"]) == (wanted and wanted["number"])
        assert found[0] is found[1] is found[2]  # a later moment goes on,
        assert found[3] is not found[2]  # an earlier one is read anew
        playback.choose(View())
        assert playback.folds() is feed.folds


def test_a_range_counts_its_own_steps_and_keeps_earlier_facts(feed: Feed) -> None:
    playback = Playback(feed)
    playback.choose(View(since=0.4, at=0.6))
    found = settled(playback)
    low, high = START_NS + 400_000_000, START_NS + 600_000_000
    steps = [e.step for e in whole_run(60) if isinstance(e, Step) and low <= e.time_ns <= high]
    assert found.columns("steps")["steps"] == len(steps) > 5
    assert found.columns("header")["name"] == "made-up"
    assert found.columns("placement")["name"] == feed.folds.columns("placement")["name"]
    assert found.columns("programs")["function"] == ["train_step"]


def test_playing_moves_at_its_speed_and_ends_at_the_end(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("distlab_dashboard.playback.time.monotonic", lambda: now[0])
    playback = Playback(feed)
    playback.choose(View(at=0.2, speed=0.25))
    playback.folds()
    assert playback.facts()["time_at"] == pytest.approx(0.2)
    now[0] += 1.0
    playback.folds()
    assert playback.facts()["time_at"] == pytest.approx(0.45)
    assert playback.facts()["time_playing"]
    now[0] += 60.0
    playback.folds()
    assert playback.facts()["time_at"] == pytest.approx(feed.length_s, abs=1e-3)


def test_a_live_range_goes_on_and_includes_late_events() -> None:
    events = whole_run(60)
    early, late = events[:200], events[200:]
    source = ListSource(list(early))
    run = ServedRun(source)
    feed = run.feed
    run.start()
    wait_until(lambda: feed.folds.cursor == len(early))
    playback = Playback(feed)
    playback.choose(View(since=0.3))
    settled(playback)
    # A number that JAX computed for long: it comes last, with the time of its call.
    old = Metric(time_ns=START_NS + 350_000_000, step=15, values={"late": 1.0})
    source.events.extend([*late, old])
    wait_until(lambda: feed.folds.cursor == len(events) + 1)
    found = settled(playback)
    low = START_NS + 300_000_000
    steps = [e for e in events if isinstance(e, Step) and e.time_ns >= low]
    assert found.columns("steps")["steps"] == len(steps)
    assert "late" in found.columns("metrics")["name"]
    run.stop()


@settings(max_examples=40, deadline=None)
@given(
    times=st.lists(st.integers(0, 50), max_size=60),
    low=st.integers(-5, 55),
    high=st.integers(-5, 55),
)
def test_events_of_a_range_are_exactly_those_of_its_times(
    times: list[int], low: int, high: int
) -> None:
    events: list[Any] = [
        Step(time_ns=at, step=n, program=0, strategy=0, dispatched_ns=at, examples=1)
        for n, at in enumerate(times)
    ]
    pages = events_between(ListSource(events), low, high)
    found = [one.event for page in pages for one in page]
    assert found == [e for e in events if low <= e.time_ns < high]


class Slow(ListSource):
    """Events that are read one page at a time, each when it may be."""

    def __init__(self, events: list[Any]) -> None:
        super().__init__(events)
        self.asked = 0
        self.allowed = threading.Semaphore(0)

    def since(self, cursor: int, limit: int = 1) -> Any:
        self.asked += 1
        assert self.allowed.acquire(timeout=LIMIT_SECONDS)
        return super().since(cursor, 1)


def slices() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "distlab-time-slice"]


def test_many_moments_one_after_another_are_read_by_one_thread() -> None:
    source = Slow(whole_run(10))
    begun = len(slices())
    feed = SimpleNamespace(source=source, zero_ns=START_NS, folds=Folds(), length_s=1.0, live=False)
    playback = Playback(cast(Any, feed))
    for number in range(100):
        playback.choose(View(at=1 - number / 100))
        playback.folds()
    assert playback.facts()["time_reading"]
    assert len(slices()) == begun + 1
    source.allowed.release(10_000)
    found = settled(playback)
    expected = TimeSlice(ListSource(source.events), None)
    expected.reach(START_NS + 10_000_001)
    wait_until(lambda: not expected.reading)
    assert found.columns("steps")["steps"] == expected.folds.columns("steps")["steps"]
    wait_until(lambda: len(slices()) == begun)
