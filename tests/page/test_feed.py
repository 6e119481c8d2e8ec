"""Reading a run once for several viewers."""

from __future__ import annotations

import threading

import pytest
from msgspec import structs

from distlab.errors import NotARunError
from distlab.events import Chunk, Event, Unknown
from distlab.folds import Folds
from distlab.page.feed import Feed
from tests.patience import wait_until
from tests.recording import samples
from tests.synthetic import START_NS, ListSource, beginning, steps


class Seen:
    """A viewer that only counts."""

    def __init__(self) -> None:
        self.refreshed = 0
        self.settled = 0
        self.ticks = 0
        self.steps = 0
        self.settled_version = 0
        self.error: Exception | None = None

    def refresh(self, folds: Folds) -> None:
        self.refreshed += 1
        self.steps = folds.columns("steps")["steps"]

    def tick(self) -> None:
        self.ticks += 1

    def settle(self, folds: Folds) -> None:
        self.settled += 1
        self.settled_version = folds.version("steps")

    def fail(self, error: Exception) -> None:
        self.error = error


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "distlab-feed"]


def test_viewers_follow_a_growing_source() -> None:
    events: list[Event | Unknown] = [*beginning(), *steps(2)]
    feed, seen = Feed(ListSource(events)), Seen()
    feed.add(seen)
    wait_until(lambda: seen.steps == 2)
    events.extend(steps(3, first=2))
    wait_until(lambda: seen.steps == 5)
    feed.remove(seen)


def test_a_viewer_is_refreshed_once_for_whatever_is_new() -> None:
    feed, seen = Feed(ListSource([*beginning(), *steps(3_000)])), Seen()
    feed._viewers.append(seen)
    assert feed.pull()
    assert (seen.steps, seen.refreshed) == (3_000, 1)
    for _ in range(20):
        feed._round(threading.Event())
    assert (seen.refreshed, seen.settled) == (1, 1)
    assert seen.settled_version == feed.folds.version("steps")


def test_several_viewers_share_one_thread_that_ends_with_the_last() -> None:
    before = threads()

    def started() -> int:
        return len({*threads()} - {*before})

    feed, one, other = Feed(ListSource([])), Seen(), Seen()
    feed.add(one)
    feed.add(other)
    assert started() == 1
    feed.remove(one)
    assert started() == 1
    feed.remove(other)
    wait_until(lambda: started() == 0)


def test_a_thread_that_could_not_start_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    feed, seen = Feed(ListSource([*beginning(), *steps(2)])), Seen()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            feed.add(seen)
    feed.remove(seen, wait=True)
    feed.add(seen)
    wait_until(lambda: seen.steps == 2)
    feed.remove(seen, wait=True)
    assert threads() == []


def test_an_error_of_the_source_reaches_viewers_and_ends_it() -> None:
    class Gone:
        def since(self, cursor: int, limit: int = 10_000) -> Chunk:
            raise NotARunError(f"the folder is gone at {cursor} with {limit}")

    before = threads()
    feed, seen = Feed(Gone()), Seen()
    feed.add(seen)
    wait_until(lambda: seen.error is not None)
    assert isinstance(seen.error, NotARunError)
    wait_until(lambda: {*threads()} <= {*before})
    feed.remove(seen)


def test_a_run_of_workers_is_as_long_as_its_coordinator_worked() -> None:
    work = structs.replace(samples.closures(1), time_ns=START_NS + 3_000_000_000, start_ns=START_NS)
    feed, seen = Feed(ListSource([*beginning(1)[:1], work])), Seen()
    feed.add(seen)
    wait_until(lambda: feed.length_s == 3.0)
    feed.remove(seen)
