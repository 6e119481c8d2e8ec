"""The pages of damaged runs: each says what is wrong and shows the rest."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import pytest

from distlab.errors import NotARunError
from distlab.page.board import Board
from distlab.page.view import View
from distlab_dashboard.library import Library, served_run
from distlab_dashboard.run_page import RunPage
from distlab_dashboard.served_run import ServedRun
from distlab_dashboard.session import Session
from tests.damaged import DAMAGES, damaged_run
from tests.patience import wait_until
from tests.ui.asking import ask
from tests.ui.conftest import Pages, Served

TITLES = ("A part of the run can't be shown", "The run can't be read any further")


def is_read(run: ServedRun) -> bool:
    return run.feed.caught_up or bool(run.trouble)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:ColumnDataSource's columns must be of the same length")
def test_a_damaged_run_is_shown_with_what_is_wrong(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, damage in DAMAGES.items():
        folder = damaged_run(tmp_path / name, damage)
        run = served_run(folder)
        page = RunPage(run, Board(), ("",), ())
        run.start()
        wait_until(partial(is_read, run), name)
        for shown in (damage.page, "steps"):
            page.update(View(page=shown), library=False)
        said = run.trouble or run.damage
        assert said.startswith(f"The run in {folder} can't be "), name
        assert "because it holds what no recording does (" in said
        assert said.endswith('Its file is damaged: run.export("events.jsonl") may hold more of it.')
        facts = page.facts(View(), run.feed.folds, library=False)
        assert facts["trouble_title"] in TITLES
        assert facts["strategy"] == "MirroredStrategy" or name == "memory"
        run.stop()
    faults = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert faults
    assert all(one.exc_info is None for one in faults)  # no traceback for a file's fault


@pytest.mark.filterwarnings("ignore:ColumnDataSource's columns must be of the same length")
def test_a_chart_that_is_not_drawn_claims_nothing(
    tmp_path: Path, served: Served, new_page: Pages
) -> None:
    url = served(damaged_run(tmp_path / "run", DAMAGES["bytes"])).url
    page = new_page().open(f"{url}#placement")
    page.page.wait_for_selector("[data-text=trouble]:visible")
    assert page.text("trouble_title") in TITLES
    page.tab("placement")
    assert page.page.evaluate(_TEXTS, "placement") == ["This can't be drawn."]
    page.tab("steps")
    assert page.page.locator("[data-text=trouble]").is_visible()


_TEXTS = """root => Bokeh.documents[0].roots().find((model) => model.name === root).references()
  .values().filter((model) => model.type === "LabelSet")
  .flatMap((model) => Array.from(model.source.data.text ?? [])).toArray()"""


def test_metrics_of_a_damaged_run_are_refused(tmp_path: Path, served: Served) -> None:
    damaged_run(tmp_path / "run", DAMAGES["huge"])
    answer = ask(served(tmp_path), "metrics?run=run")
    assert answer.status == 500
    assert b"Its file is damaged" in answer.body


def test_a_comparison_names_both_runs(tmp_path: Path) -> None:
    damaged_run(tmp_path / "first", DAMAGES["memory"])
    damaged_run(tmp_path / "second", DAMAGES["huge"])
    runs = Library(tmp_path)
    opened = Session(runs, "first", ["second"])
    page = opened._page
    assert page is not None
    (other,) = page._others
    wait_until(lambda: bool(other.trouble))
    page.run.damage = ""
    opened._view = View(page="compare")
    opened._update()
    said = f"can't be compared with the one in {tmp_path / 'second'}, because it holds"
    assert said in page.run.damage
    opened._release()
    runs.stop()


def test_what_can_not_be_shown_at_all_is_a_notice(
    tmp_path: Path, served: Served, new_page: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the file holds, the answer is no empty page, and no session keeps the run."""

    def refuse(*_: object, **__: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(RunPage, "update", refuse)
    server = served(damaged_run(tmp_path / "run", DAMAGES["bytes"]))
    page = new_page().page
    page.goto(server.url)
    page.get_by_text("because it holds what no recording does (KeyError: 'x')").wait_for()
    library = Library(tmp_path / "run", served_run(tmp_path / "run"))
    with pytest.raises(NotARunError, match=r"can't be shown, .*Its file is damaged"):
        Session(library)
    assert [pages for _, pages in library._held.values()] == [0]
    library.stop()
