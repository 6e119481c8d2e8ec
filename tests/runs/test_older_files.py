"""Run files that older versions wrote open, with what they did not know left out."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from distlab import events
from distlab.recording import Run
from tests.synthetic import there

OLDER = Path(__file__).parent / "older"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """The run of schema 1, a copy: SQLite may write next to what it reads."""
    folder = shutil.copytree(OLDER / "schema-1", tmp_path / "run")
    return Run.open(folder)


def test_a_run_of_schema_1_has_all_its_events(run: Run) -> None:
    assert run.meta["schema"] == 1
    assert run.seconds is None
    assert Counter(events.kind_of(event) for event in run.events()) == {
        "run": 1,
        "strategy": 1,
        "placement": 1,
        "sharding": 4,
        "preview": 4,
        "compile": 6,
        "step": 8,
        "step_ready": 8,
        "reduction": 4,
        "metric": 4,
        "device_sample": 4,
        "error": 1,
        "run_end": 1,
    }
    assert run.summary()["status"] == "finished"
    assert run.summary()["steps"] == 8


def test_what_schema_1_did_not_know_has_its_default(run: Run) -> None:
    compiled = [e for e in run.events("compile") if isinstance(e, events.Compile)]
    assert {e.peak_bytes for e in compiled} == {None}
    collectives = [one for e in compiled for one in e.collectives]
    assert {one.kind for one in collectives} == {"all-reduce"}
    assert {(one.wire_bytes, one.group, tuple(one.values)) for one in collectives} == {
        (None, 0, ())
    }
    reductions = [e for e in run.events("reduction") if isinstance(e, events.Reduction)]
    assert {e.array for e in reductions} == {-1}
    batches = [e for e in run.events("sharding") if isinstance(e, events.Sharding)]
    assert {e.index_bytes for e in batches} == {8}
    assert [len(there(e.positions)) for e in batches] == [sum(e.sizes) for e in batches]
    samples = [e for e in run.events("device_sample") if isinstance(e, events.DeviceSample)]
    assert {e.basis for e in samples} == {"ready"}
