"""The tables of processes: who lacks what, and what crosses between them."""

from __future__ import annotations

import msgspec

from distlab.events import Capture, ClockOffset, Compile, Event, Reduction, RunEnd, Strategy
from distlab.folds import Folds
from distlab.page.facts.cards import capture_facts
from distlab.page.facts.workers import worker_facts
from distlab.page.workers import LINKS, NAMES, link_rows, worker_rows
from tests.several_workers import in_order, several
from tests.synthetic import whole_run


def folded(parts: list[list[Event]]) -> Folds:
    folds, envelopes = Folds(), in_order(parts)
    folds.add([one.event for one in envelopes], [one.process for one in envelopes])
    return folds


def notes(parts: list[list[Event]], living: set[int] | None = None) -> list[str]:
    return worker_facts(folded(parts).columns("workers"), living)["worker_notes"]


def test_each_process_has_a_row() -> None:
    shown = folded(several(40, workers=4)).columns("workers")
    rows = worker_rows(shown, frozenset())
    assert set(rows) == set(NAMES)
    assert rows["worker"] == [f"worker {n}" for n in range(4)]
    assert rows["host"] == [f"host-{n}" for n in range(4)]
    assert rows["replicas"] == ["0 to 1", "2 to 3", "4 to 5", "6 to 7"]
    assert rows["status"] == ["finished"] * 4
    assert rows["steps"] == ["40"] * 4
    assert rows["own"] == ["9.9 ms"] * 4
    assert rows["clock"] == ["its own", "the same", "the same", "the same"]
    facts = worker_facts(shown, frozenset())
    assert (facts["workers"], facts["worker_notes"]) == ("4 processes on 4 machines", [])


def test_a_process_by_itself_has_all_replicas() -> None:
    folds = Folds()
    folds.add(whole_run(3))
    assert worker_rows(folds.columns("workers"), frozenset())["replicas"] == ["0 to 7"]
    facts = worker_facts(folded([several(3, workers=1)[0]]).columns("workers"), None)
    assert (facts["has_workers"], facts["worker_notes"]) == (False, [])


def test_the_error_of_another_machines_clock_is_shown() -> None:
    first, second = several(40)
    compared = ClockOffset(time_ns=second[-1].time_ns, offset_ns=-1_500_000, error_ns=120_000)
    rows = worker_rows(folded([first, [*second[:-1], compared]]).columns("workers"), None)
    assert rows["clock"] == ["its own", "-1.5 \u00b1 0.12 ms"]


def test_a_capture_names_the_workers_that_it_lacks() -> None:
    first, second = several(40)
    taken = Capture(
        time_ns=second[-2].time_ns,
        strategy=next(e.strategy for e in first if isinstance(e, Strategy)),
        start_ns=second[-2].time_ns - 10,
        steps=2,
        asked_by="user",
        devices=["worker 0 CPU:0"],
        compute_ns=[10],
        waiting_ns=[0],
        copy_ns=[0],
        idle_ns=[0],
        spans=[b""],
        spans_left_out=0,
        profile_bytes=100,
        cost_ns=10,
        first_step=39,
    )
    parts = [[e for e in part if not isinstance(e, Capture)] for part in (first, second)]
    parts[0].insert(-1, taken)
    folds = folded(parts)
    note = capture_facts(folds.columns("captures"), folds.columns("workers"))["capture_note"]
    assert note.endswith(
        "It lacks worker 1: one picture shows the workers that capture at the same step."
    )
    whole = folded(several(40))
    said = capture_facts(whole.columns("captures"), whole.columns("workers"))["capture_note"]
    assert "lacks" not in said


def test_a_process_that_is_missing_or_behind_is_named() -> None:
    first, second = several(100)
    assert notes([first]) == ["worker 1 has recorded nothing yet"]
    cut = second[: len(second) // 2]
    (said,) = notes([first, cut], set())
    assert said.startswith("worker 1 ended without closing its recording at step ")
    failed = RunEnd(time_ns=cut[-1].time_ns, status="failed", message="ValueError: no")
    (said,) = notes([first, [*cut, failed]])
    assert said.startswith("worker 1 failed at step ")
    assert said.endswith(": ValueError: no")
    finished = msgspec.structs.replace(failed, status="finished", message="")
    (said,) = notes([first, [*cut, finished]])
    assert said.endswith(", and another one is at step 99")
    assert notes([first[:-1], cut], {0, 1}) == []
    assert notes([first, second]) == []


def links(workers: int, wire_bytes: int, group: int) -> dict[str, list[str]]:
    """The links of a run whose program has one collective of groups of so many replicas."""
    parts: list[list[Event]] = [[] for _ in range(workers)]
    for part, events in zip(parts, several(10, workers=workers), strict=True):
        for event in events:
            if isinstance(event, Compile):
                sent = {"wire_bytes": wire_bytes, "group": group}
                collective = msgspec.structs.replace(event.collectives[0], **sent)
                part.append(msgspec.structs.replace(event, collectives=[collective]))
            elif not isinstance(event, Reduction):
                part.append(event)
    folds = folded(parts)
    sums = folds.columns("programs"), folds.columns("reductions")
    rows = link_rows(folds.columns("workers"), *sums, steps=10)
    assert set(rows) == set(LINKS)
    return rows


def test_as_many_links_of_a_ring_cross_as_there_are_processes() -> None:
    for workers, inside in ((2, "3.00 kB"), (4, "1.00 kB")):
        rows = links(workers, 1_000, 8)
        assert list(zip(rows["from"], rows["to"], rows["way"], rows["step"], strict=True)) == [
            *[
                (f"worker {n}", f"worker {(n + 1) % workers}", "crosses", "1.00 kB")
                for n in range(workers)
            ],
            *[(f"worker {n}", f"worker {n}", "stays inside", inside) for n in range(workers)],
        ]
    rows = links(2, 500, 4)  # groups within a process send nothing to another
    assert rows["way"] == ["stays inside"] * 2
    assert rows["total"] == ["20.0 kB"] * 2
