"""A folder with more runs than the page Runs lists: the newest and those that go on are there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from distlab.page.facts import runs_facts
from distlab.runs.run_file import RunFile
from distlab_dashboard import library
from distlab_dashboard.library import Library
from tests.synthetic import beginning, whole_run
from tests.ui.asking import ask
from tests.ui.conftest import Pages, Served


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Six runs, the later by name the older, and a last one that goes on; three are listed."""
    monkeypatch.setattr(library, "_MOST_RUNS", 3)
    for number, name in enumerate("abcdef"):
        file = RunFile(tmp_path / name, name)
        file.write(whole_run(2))
        file.close()
        written_s = 1_700_000_000 + 1_000 * number * (-1) ** (number < 3)
        os.utime(tmp_path / name / "process-0.sqlite", (written_s, written_s))
    file = RunFile(tmp_path / "z", "z")
    file.write(beginning())
    for path in (tmp_path / "z").iterdir():
        os.utime(path, (1, 1))
    yield tmp_path
    file.close()


def test_the_list_has_the_newest_runs_and_all_that_go_on(
    folder: Path, served: Served, new_page: Pages
) -> None:
    runs = Library(folder)
    found = {run.key: run.status for run in runs.summaries()}
    assert found == {"d": "finished", "e": "finished", "f": "finished", "z": "running"}
    assert runs.left_out == 3
    assert runs.hold("a").name == "a"
    runs.stop()
    server = served(folder)
    assert json.loads(ask(server, "health").body)["runs"] == 7
    text = ask(server, "metrics").body.decode()
    assert 'distlab_runs{status="running"} 1' in text
    assert 'distlab_runs{status="finished"} 3' in text
    assert 'distlab_runs{status="not read"} 3' in text
    assert 'distlab_steps_total{run="z"} 0' in text
    page = new_page().open(server.url)
    page.page.wait_for_function("() => document.querySelectorAll('.runs tbody tr').length === 4")
    note = page.page.locator("[data-text=runs_left_out]")
    assert note.is_visible()
    assert note.inner_text() == (
        "3 older runs are not listed: the table has the 4 that are live or were written last. "
        "?run=NAME in the address opens any."
    )
    page.page.click(".runs tbody tr a:text-is('f')")
    page.page.wait_for_selector("html[data-ready=true]")
    page.tab("runs")
    assert note.is_visible()
    assert runs_facts(7, 0) == {"runs_left_out": ""}
