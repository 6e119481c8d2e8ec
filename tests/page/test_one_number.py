"""Figures that stand in several places are the same in all of them."""

from __future__ import annotations

import time
from pathlib import Path

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab import cli
from distlab.control.loops import loops
from distlab.page.board import Board
from distlab.page.runs_table import run_rows
from distlab.page.view import View
from distlab.recording import RingRecorder
from distlab.widgets._summary import summarize
from distlab_dashboard.library import Library, served_run
from distlab_dashboard.run_page import RunPage


def test_a_run_has_one_speed_length_and_status(
    recorder: RingRecorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    dataset = dl.data.Dataset.range(400).batch(4)
    batches = strategy.experimental_distribute_dataset(dataset)
    begun = []
    with dl.record(tmp_path / "first", total_steps=80, probe=False) as recording:
        for batch in batches:
            begun.append(time.perf_counter())
            recording.log(loss=strategy.reduce("SUM", strategy.run(jnp.sum, (batch,)), axis=None))
    run = served_run(tmp_path / "first")
    run.feed.pull()
    run.feed.caught_up = True
    overview = RunPage(run, Board(), ("first",), ()).facts(View(), run.feed.folds, library=True)
    listed = {name: row[0] for name, row in run_rows(Library(tmp_path).summaries()).items()}
    assert listed["rate"] == overview["rate"]
    clock = 99 / (begun[-1] - begun[0])
    assert float(listed["rate"].replace("\u202f", "")) == pytest.approx(clock, rel=0.02)
    assert listed["steps"] == overview["steps"] == "100"  # more than the 80 that were meant
    assert str(overview["eta"]).startswith(f"took {listed['took']}, ")
    assert listed["status"] == overview["status_text"] == "finished"
    assert overview["without_advice"] == "none"
    assert listed["metrics"] == f"loss {overview['loss']}"
    watched = summarize(run.feed.folds, None, ("rates",), live=False)
    assert ("steps, on average", overview["rate"]) in watched.rates
    assert watched.status == "finished"
    run.stop()
    assert cli.main(["runs", str(tmp_path)]) == 0
    row = capsys.readouterr().out.splitlines()[1].split("  ")
    assert str(overview["rate"]).replace("\u202f", " ") in [cell.strip() for cell in row]


def test_a_stopped_run_without_steps_says_so_everywhere(
    recorder: RingRecorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with dl.record(tmp_path / "first", probe=False):
        for _ in dl.controlled(range(9)):
            loops()[0].stop()
    run = served_run(tmp_path / "first")
    run.feed.pull()
    run.feed.caught_up = True
    overview = RunPage(run, Board(), ("first",), ()).facts(View(), run.feed.folds, library=True)
    run.stop()
    assert (overview["status_text"], overview["without_advice"]) == ("stopped", "needs steps")
    assert run_rows(Library(tmp_path).summaries())["status"] == ["stopped"]
    assert cli.main(["advise", str(tmp_path / "first")]) == 0
    assert capsys.readouterr().out == "Advice needs steps, and the run recorded none.\n"
