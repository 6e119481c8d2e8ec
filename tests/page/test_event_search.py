"""Searching events from the newest to the oldest, in rings and files."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from distlab.events import Preview, Step, Unknown, kind_of
from distlab.page.event_search import (
    MOST_ROWS,
    EventSearch,
    Query,
    backwards,
    summary_of,
    whole_of,
)
from distlab.recording.ring import Ring
from tests.synthetic import START_NS, ListSource, whole_run

FAR = 1 << 62


def step(number: int) -> Step:
    return Step(
        time_ns=START_NS + number,
        step=number,
        program=0,
        strategy=0,
        dispatched_ns=START_NS,
        examples=1,
    )


def found(source: Any, before: int, **asked: Any) -> EventSearch:
    query = {"kind": "", "text": "", "low_ns": -FAR, "high_ns": FAR, "before": before, **asked}
    search = EventSearch(source, START_NS, Query(**query))
    end = time.monotonic() + 60
    while not search.done:
        assert time.monotonic() < end, "waited too long for the search"
        threading.Event().wait(0.005)
    return search


@pytest.mark.parametrize("count", [0, 5_000])
def test_backwards_yields_every_event_once_with_its_number(count: int) -> None:
    source = ListSource([step(number) for number in range(count)])
    given = list(backwards(source, count))
    assert [number for number, _ in given] == list(range(count))[::-1]
    assert all(isinstance(e, Step) and e.step == number for number, e in given)


def test_backwards_ends_where_a_ring_has_dropped_events() -> None:
    ring = Ring(capacity=1_000)
    for number in range(10_000):
        ring.append(step(number))
    given = list(backwards(ring, ring.end))
    assert [number for number, _ in given] == list(range(9_999, 9_999 - len(given), -1))
    assert all(isinstance(e, Step) and e.step == number for number, e in given)
    assert 800 <= len(given) <= 1_200


def test_the_newest_that_fit_are_listed() -> None:
    events = whole_run(60)
    rows = found(ListSource(events), len(events), kind="step").rows()
    assert len(rows["number"]) == 60
    assert set(rows["kind"]) == {"step"}
    assert rows["text"][0].startswith("step=59  program=0")
    for number, at in zip(rows["number"], rows["time"], strict=True):
        event = events[int(number)]
        assert kind_of(event) == "step"
        assert at == f"{(event.time_ns - START_NS) / 1e9:.6f}"


def test_a_full_page_reports_that_there_are_more() -> None:
    source = ListSource([step(number) for number in range(3 * MOST_ROWS)])
    first = found(source, 3 * MOST_ROWS)
    assert first.more
    assert first.rows()["number"] == [str(n) for n in range(299, 199, -1)]
    last = found(source, 100)
    assert not last.more
    assert last.rows()["number"] == [str(n) for n in range(99, -1, -1)]


def test_a_search_ignores_case_and_keeps_to_its_time() -> None:
    events = whole_run(60)
    search = found(ListSource(events), len(events), text="DENSE/kernel")
    assert search.rows()["kind"] == ["placement"]
    assert search.searched == len(events)
    high = START_NS + 300_000_000
    rows = found(ListSource(events), len(events), kind="step", high_ns=high).rows()
    assert max(float(at) for at in rows["time"]) < 0.3


def test_bytes_are_counted_and_long_lists_cut() -> None:
    preview = next(e for e in whole_run(3) if isinstance(e, Preview))
    assert f"data=<{len(preview.data):,} bytes>" in summary_of(preview)
    assert '"<4,096 bytes>"' in whole_of(preview)
    strange = Unknown(
        time_ns=1, kind="later", fields={"many": list(range(1_000)), "x": float("nan")}
    )
    assert "[0, 1, 2, 3, 4, 5, 6, 7, \u2026 1000 in all]" in summary_of(strange)
    assert "and 936 more" in whole_of(strange)
