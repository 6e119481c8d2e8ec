"""Recorded events of scheduled functions, compared with counts of the program itself."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.errors import CancelledError
from distlab.events import Closures, WorkerClosures
from distlab.folds import Folds
from distlab.page.facts.servers import server_facts
from distlab.variables.server_traffic import Link
from tests.patience import LIMIT_SECONDS, wait_until
from tests.strategies.parameter_servers import strategy_of


@contextlib.contextmanager
def recorded(folder: Path, strategy: dl.ParameterServerStrategy) -> Iterator[list[Closures]]:
    """Yields a list that has the events of a strategy's coordinator in the end."""
    found: list[Closures] = []
    with dl.record(folder, probe=False):
        yield found
    with dl.Run.open(folder) as run:
        kept = [event for event in run.events("closures") if isinstance(event, Closures)]
    found += [event for event in kept if event.strategy == strategy.number]


def totals(events: list[Closures]) -> dict[str, int]:
    """Returns the sums over all workers and periods."""
    names = ("begun", "done", "failed", "retried")
    return {name: sum(getattr(one, name) for e in events for one in e.active) for name in names}


def links_of(events: list[Closures], server: int) -> Link:
    """Returns the figures of a server with all workers."""
    total = Link()
    for link in (link for event in events for link in event.links if link.server == server):
        fields = Link.__dataclass_fields__
        total.add(tuple(getattr(link, name) for name in fields))
    return total


def test_closures_are_counted_as_the_program_counts_them(tmp_path: Path) -> None:
    strategy = strategy_of(1, workers=2)
    coordinator = dl.coordinator.ClusterCoordinator(strategy)
    ran: Counter[int] = Counter()

    def count() -> None:
        ran[dl.coordinator.experimental_get_current_worker_index()] += 1

    coordinator.schedule(count).fetch()  # before the recording
    before = Counter(ran)
    with recorded(tmp_path / "run", strategy) as events:
        for _ in range(300):
            coordinator.schedule(count)
        coordinator.join()
    assert totals(events) == {"begun": 300, "done": 300, "failed": 0, "retried": 0}
    by_worker: Counter[int] = Counter()
    for event in events:
        by_worker.update({one.worker: one.done for one in event.active})
    assert +by_worker == +(ran - before)
    assert sum(event.scheduled for event in events) == 300
    name = f"{test_closures_are_counted_as_the_program_counts_them.__name__}.<locals>.count"
    assert {n for event in events for n in event.functions} == {name}
    assert sum(sum(event.functions.values()) for event in events) == 300
    assert sum(len(event.spans) + event.spans_left_out for event in events) == 300
    assert events[-1].waiting == 0
    for event in events:
        assert (event.workers, event.servers, event.processes) == (2, 1, False)
        period_ns = event.time_ns - event.start_ns
        assert all(0 <= one.busy_ns <= period_ns + 1_000 for one in event.active)
        for span in event.spans:
            assert span.outcome == "done"
            assert span.begin_ns + span.took_ns <= period_ns + 1_000
    for one, following in itertools.pairwise(events):
        assert one.time_ns <= following.start_ns


def test_failed_and_cancelled_functions_are_told(tmp_path: Path) -> None:
    strategy = strategy_of(1)
    coordinator = dl.coordinator.ClusterCoordinator(strategy)
    may_go = threading.Event()

    def fail() -> None:
        may_go.wait(LIMIT_SECONDS)
        raise ValueError("planned")

    with recorded(tmp_path / "run", strategy) as events:
        first = coordinator.schedule(fail)
        other = [coordinator.schedule(int) for _ in range(3)]

        def let_go() -> None:
            wait_until(lambda: coordinator._queue._listeners > 0, "join listens")
            may_go.set()

        helper = threading.Thread(target=let_go)
        helper.start()
        with pytest.raises(ValueError, match="planned"):
            coordinator.join()
        helper.join()
        with pytest.raises(ValueError, match="planned"):
            first.fetch()
        for result in other:
            with pytest.raises(CancelledError):
                result.fetch()
    assert totals(events) == {"begun": 1, "done": 0, "failed": 1, "retried": 0}
    assert sum(event.cancelled for event in events) == 3
    assert [span.outcome for event in events for span in event.spans] == ["failed"]
    folds = Folds()
    folds.add(events)
    columns = folds.columns("coordination")
    facts = server_facts(columns, columns, 0, ended=True)
    assert facts["closures"].startswith(
        "4 functions scheduled: 0 done, 1 failed, 0 running, 0 in the coordinator's queue."
    )
    assert facts["closure_notes"] == [
        "3 functions cancelled before they began, because another raised an error"
    ]


def test_a_function_that_runs_is_told_while_it_runs(tmp_path: Path) -> None:
    strategy = strategy_of(1)
    coordinator = dl.coordinator.ClusterCoordinator(strategy)
    may_go, began = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        may_go.wait(LIMIT_SECONDS)

    with dl.record(tmp_path / "run", probe=False):
        coordinator.schedule(wait)
        coordinator.schedule(int)
        assert began.wait(LIMIT_SECONDS)

        def seen() -> list[tuple[WorkerClosures, int]]:
            with dl.Run.open(tmp_path / "run") as run:
                found = [e for e in run.events("closures") if isinstance(e, Closures)]
            own = [e for e in found if e.strategy == strategy.number]
            return [(one, e.waiting) for e in own for one in e.active]

        wait_until(lambda: any(one.running and waiting for one, waiting in seen()), "its event")
        may_go.set()
        coordinator.join()
    assert {one.queued for one, _ in seen()} == {0}  # a thread takes one at a time
    assert seen()[-1][0].running == ""
    assert sum(one.done for one, _ in seen()) == 2


def test_reads_and_changes_of_threads_are_counted_by_server(tmp_path: Path) -> None:
    strategy = strategy_of(2)
    coordinator = dl.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight, scale = dl.Variable(jnp.zeros((8, 4))), dl.Variable(1.0)

    def step() -> None:
        strategy.run(lambda: weight.assign_add(jnp.ones((8, 4)) * scale.value()))

    def direct() -> None:
        scale.assign(weight.value()[0, 0])

    with recorded(tmp_path / "run", strategy) as events:
        for fn in [step] * 20 + [direct] * 10:
            coordinator.schedule(fn)
        coordinator.join()
        weight.assign(jnp.zeros((8, 4)))  # not by a worker
    first, second = links_of(events, 0), links_of(events, 1)
    assert (first.reads, first.read_bytes) == (30, 30 * 128)
    assert (first.changes, first.change_bytes) == (20, 20 * 128)
    assert (second.reads, second.read_bytes) == (20, 20 * 4)
    assert (second.changes, second.change_bytes) == (10, 10 * 4)
    assert (first.used, first.behind) == (20, 0)
    for link in (first, second):
        assert (link.read_messages, link.change_messages) == (0, 0)


def test_value_is_behind_by_changes_of_others_since_it_was_read(tmp_path: Path) -> None:
    strategy = strategy_of(1, workers=2)
    coordinator = dl.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = dl.Variable(0.0)
    read, changed = threading.Event(), threading.Event()

    def slow() -> None:
        value = weight.value()
        read.set()
        assert changed.wait(LIMIT_SECONDS)
        weight.assign(value + 1.0)
        weight.assign_add(1.0)  # its own change does not count

    def quick() -> None:
        assert read.wait(LIMIT_SECONDS)
        for _ in range(3):
            weight.assign_add(1.0)  # without a read: none is behind
        changed.set()

    with recorded(tmp_path / "run", strategy) as events:
        coordinator.schedule(slow)
        coordinator.schedule(quick)
        coordinator.join()
    link = links_of(events, 0)
    assert (link.reads, link.changes) == (1, 5)
    assert (link.used, link.behind, link.most_behind) == (2, 6, 3)
