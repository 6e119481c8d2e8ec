"""A view as text."""

from __future__ import annotations

import pytest

from distlab.advice._texts import new_advice
from distlab.events import Event, Placement, RunEnd, Unknown
from distlab.folds import Folds
from distlab.widgets import Watch
from distlab.widgets._summary import Summary, summarize
from tests.synthetic import START_NS, beginning, ending, steps


def said_of(events: list[Event | Unknown], batch: int | None = None) -> Summary:
    folds = Folds()
    folds.add(events)
    return summarize(folds, folds.batch(batch), Watch.panes)


def test_an_empty_run_names_the_next_step() -> None:
    said = said_of([])
    assert said.status == "waiting"
    assert "Run the cell that trains" in said.batch
    assert said.sizes == []
    assert said.busy == []


def test_a_run_is_live_until_it_ends() -> None:
    run: list[Event | Unknown] = [*beginning(), *steps(3)]
    assert said_of(run).status == "live"
    said = said_of([*run, ending(3)])
    assert said.status == "finished"
    assert said.reductions[0].startswith("all-reduce inside train_step: 3 times 9.64 kB")
    end = RunEnd(time_ns=START_NS + 10**9, status="failed", message="ValueError: no")
    said = said_of([*run, end])
    assert said.status == "failed"
    assert "The run failed: ValueError: no" in said.notes


def test_lost_events_are_noted() -> None:
    folds = Folds()
    folds.add([*beginning(), *steps(3)])
    folds.lost = 1_200
    notes = summarize(folds, folds.batch(), Watch.panes).notes
    assert notes[-1] == "1\u202f200 events lost; no number here includes them"


def test_two_findings_come_first_and_the_others_are_counted() -> None:
    found = [
        new_advice(
            "host_bound", "loop", f"Text {n}.", "Remedy.", evidence={}, page="steps", share=0.5
        )
        for n in range(4)
    ]
    folds = Folds()
    folds.add([*beginning(), *steps(3)])
    notes = summarize(folds, folds.batch(), Watch.panes, advice=found).notes
    assert notes[:3] == [
        "Advice: Text 0. Remedy.",
        "Advice: Text 1. Remedy.",
        "And 2 more findings.",
    ]


@pytest.mark.parametrize(
    ("servers", "title"),
    [((None,), "device"), ((0, 1), "server"), ((None, 0), "device or server")],
)
def test_the_title_of_a_placement_says_what_its_rows_are(
    servers: tuple[int | None, ...], title: str
) -> None:
    events: list[Event | Unknown] = [
        Placement(
            time_ns=START_NS + array,
            strategy=0,
            array=array,
            name=f"w{array}",
            action="place",
            layout="single",
            shape=[1],
            dtype="float32",
            devices=["CPU:0"],
            bytes_per_device=[4],
            server=server,
        )
        for array, server in enumerate(servers)
    ]
    folds = Folds()
    folds.add(events)
    lines = summarize(folds, folds.batch(None), ("placement",)).lines()
    assert f"Bytes of all variables on each {title}" in lines
