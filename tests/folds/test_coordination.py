"""The sums of a coordinator's columns are those of its events."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.events import (
    Closures,
    ClosureSpan,
    Event,
    Run,
    ServerLink,
    TaskState,
    WorkerClosures,
)
from distlab.folds import Folds
from distlab.page.facts.amounts import NOTHING
from distlab.page.facts.servers import server_facts
from distlab.page.servers import closure_rows, link_rows
from tests.recording import samples
from tests.synthetic import START_NS, beginning

PERIOD_NS = 250_000_000
COUNTS = st.integers(0, 1_000)
STALENESS = ("used", "behind", "most_behind")


CLOSURES = ("begun", "done", "failed", "retried", "queued")
LINKS = (
    *("reads", "read_bytes", "changes", "change_bytes", "used", "behind", "most_behind"),
    *("read_messages", "change_messages"),
)


@st.composite
def periods(draw: st.DrawFn) -> list[Closures]:
    """Draws the events of a coordinator with 3 workers and 2 servers."""

    def counts(names: tuple[str, ...]) -> dict[str, Any]:
        return {name: draw(COUNTS) for name in names}

    made = []
    span = ClosureSpan(
        worker=0, function="step", waited_ns=0, begin_ns=0, took_ns=1, outcome="done"
    )
    for number in range(draw(st.integers(1, 12))):
        active = [
            WorkerClosures(
                worker=worker,
                busy_ns=draw(st.integers(0, PERIOD_NS)),
                running=draw(st.sampled_from(["", "step"])),
                **counts(CLOSURES),
            )
            for worker in sorted(draw(st.sets(st.integers(0, 2))))
        ]
        pairs = draw(st.sets(st.tuples(st.integers(0, 2), st.integers(0, 1))))
        start_ns = START_NS + number * PERIOD_NS
        made.append(
            Closures(
                time_ns=start_ns + PERIOD_NS,
                strategy=0,
                start_ns=start_ns,
                processes=False,
                workers=3,
                servers=2,
                active=active,
                links=[ServerLink(worker=w, server=s, **counts(LINKS)) for w, s in sorted(pairs)],
                functions=counts(("step",)),
                spans=[span],
                **counts(("scheduled", "cancelled", "waiting", "spans_left_out")),
            )
        )
    return made


@given(made=periods())
@settings(max_examples=20, deadline=None)
def test_columns_are_the_sums_of_the_events(made: list[Closures]) -> None:
    folds = Folds()
    run: list[Event] = [*beginning(1)[:1], *made]
    folds.add(run)
    columns = folds.columns("coordination")
    for name in ("done", "failed", "retried"):
        sums = [
            sum(getattr(one, name) for e in made for one in e.active if one.worker == worker)
            for worker in range(3)
        ]
        assert columns[f"worker_{name}"] == sums  # type: ignore[literal-required]
    for place, link in enumerate(zip(columns["link_worker"], columns["link_server"], strict=True)):
        own = [one for e in made for one in e.links if (one.worker, one.server) == link]
        assert columns["link_reads"][place] == sum(one.reads for one in own)
        assert columns["link_read_bytes"][place] == sum(one.read_bytes for one in own)
        assert columns["link_changes"][place] == sum(one.changes for one in own)
        assert columns["link_change_bytes"][place] == sum(one.change_bytes for one in own)
        assert columns["link_read_messages"][place] == sum(one.read_messages or 0 for one in own)
        sent = sum(one.change_messages or 0 for one in own)
        assert columns["link_change_messages"][place] == sent
    newest = {one.worker: one.queued for one in made[-1].active}
    assert columns["worker_queued"] == [newest.get(worker, 0) for worker in range(3)]
    linked = [one for event in made for one in event.links]
    assert sum(columns["worker_used"]) == sum(one.used for one in linked)
    for worker, mean in enumerate(columns["worker_behind"]):
        used = sum(one.used for one in linked if one.worker == worker)
        behind = sum(one.behind for one in linked if one.worker == worker)
        assert (mean == behind / used) if used else mean != mean
    assert max(columns["worker_most_behind"]) == max((one.most_behind for one in linked), default=0)
    assert columns["scheduled"] == sum(event.scheduled for event in made)
    assert columns["cancelled"] == sum(event.cancelled for event in made)
    assert columns["waiting"] == made[-1].waiting
    assert columns["function_count"] == [sum(e.functions["step"] for e in made)]
    assert len(columns["span_worker"]) == len(made)
    assert all(0 <= busy <= 1 for busy in columns["worker_busy"])


def test_figures_missing_in_older_files_are_no_zeros() -> None:
    folds = Folds()
    counts = {"begun": 2, "done": 1, "failed": 0, "retried": 0, "busy_ns": 1}
    figures = {"reads": 5, "read_bytes": 20, "changes": 1, "change_bytes": 4}
    event = {
        "time_ns": START_NS + PERIOD_NS,
        "start_ns": START_NS,
        "strategy": 0,
        "processes": True,
        "workers": 2,
        "servers": 1,
        **dict.fromkeys(("scheduled", "cancelled", "waiting", "spans_left_out"), 0),
        "active": [{"worker": 0, "running": "step", **counts}],
        "links": [{"worker": 0, "server": 0, **figures, **dict.fromkeys(STALENESS, 0)}],
        "functions": {},
        "spans": [],
    }
    old = msgspec.convert(event, Closures)
    folds.add([*beginning(1)[:1], old])
    columns = folds.columns("coordination")
    assert columns["worker_queued"] == [None, 0]  # the second one did nothing
    assert closure_rows(columns)["queued"] == [NOTHING, "0"]
    rows = link_rows(columns)
    assert (rows["reads"], rows["read_messages"], rows["change_messages"]) == (
        ["5"],
        [NOTHING],
        [NOTHING],
    )


def test_a_worker_that_is_lost_is_away_until_it_returns() -> None:
    folds = Folds()
    begin = next(event for event in beginning(1) if isinstance(event, Run))

    def told(state: str, after_s: float) -> TaskState:
        at_ns = START_NS + round(after_s * 1e9)
        lost = state == "lost"
        return TaskState(
            time_ns=at_ns,
            strategy=0,
            job="worker",
            task=1,
            state="lost" if lost else "returned",
            reason="no heartbeat for 25 s" if lost else "",
        )

    work = msgspec.structs.replace(
        samples.closures(0),
        time_ns=START_NS + 1,
        strategy=0,
        start_ns=START_NS,
        workers=2,
        active=[],
    )
    folds.add([begin, work, told("lost", 1.5)])
    columns = folds.columns("coordination")
    assert (columns["worker_away"], columns["worker_lost"]) == ([False, True], [0, 1])
    assert closure_rows(columns)["state"] == ["idle", "lost: no heartbeat for 25 s"]
    folds.add([told("returned", 4.0)])
    columns = folds.columns("coordination")
    assert (columns["worker_away"], columns["worker_lost"]) == ([False, False], [0, 1])
    assert columns["task_name"] == ["worker 1", "worker 1"]
    assert columns["task_s"] == [1.5, 4.0]
    assert columns["task_reason"] == ["no heartbeat for 25 s", ""]
    assert closure_rows(columns)["state"] == ["idle", "idle"]
    assert server_facts(columns, columns, 0, ended=True)["time_marks"] == [
        (1.5, "worker 1 was lost at 1.50 s: no heartbeat for 25 s"),
        (4.0, "worker 1 returned at 4.00 s"),
    ]
