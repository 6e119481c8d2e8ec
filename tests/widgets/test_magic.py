"""`%%watch`: a view, and the cell below it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import distlab as dl
from distlab.errors import OptionError, RecordError
from distlab.widgets import _view
from distlab.widgets._magic import parse, run_watched
from tests.widgets.conftest import FakeNotebook


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Any:
    config = Config()
    config.HistoryManager.enabled = False
    home = str(tmp_path_factory.mktemp("ipython"))
    with pytest.MonkeyPatch.context() as environment:
        # IPython warns where another environment is active than the one the tests run in.
        environment.delenv("VIRTUAL_ENV", raising=False)
        shell = InteractiveShell(config=config, ipython_dir=home)  # type: ignore[no-untyped-call]
    dl.load_ipython_extension(shell)
    return shell


@pytest.fixture
def shell(started: Any, notebook: FakeNotebook) -> Iterator[Any]:
    yield started
    started.reset()


def views() -> list[Any]:
    return [] if _view._open_views is None else _view._open_views.views


@pytest.mark.slow
def test_the_cell_runs_and_its_last_value_comes_back(shell: Any) -> None:
    assert run_watched(shell, "", "a = 20\na + 1\n") == 21
    assert shell.user_ns["a"] == 20
    assert run_watched(shell, "", "b = 1\n") is None
    assert run_watched(shell, "", "") is None


@pytest.mark.slow
def test_views_asked_for_are_there_before_the_cell_runs(shell: Any) -> None:
    run_watched(shell, "", "pass")
    shell.user_ns["count"] = lambda: len(views())
    assert run_watched(shell, "steps batches steps", "count()") == 2
    assert [view.panes for view in views()] == [
        ("loss", "batches", "devices", "reductions"),
        ("rates", "timeline", "batches"),
    ]


@pytest.mark.slow
def test_a_recording_has_the_name_that_the_cell_uses(shell: Any, tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    run_watched(shell, f'--record "{folder}" run batches', "run.log(loss=0.5)")
    assert dl.Run.open(folder).summary()["metrics"] == {"loss": 0.5}
    with pytest.raises(RecordError, match="already holds one"):
        run_watched(shell, f'--record "{folder}"', "pass")
    run_watched(shell, f'--record "{folder}" --overwrite', "pass")
    assert dl.Run.open(folder).summary()["metrics"] == {}


@pytest.mark.slow
def test_an_error_ends_the_cell_and_is_shown_with_its_line(
    shell: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ZeroDivisionError):
        run_watched(shell, f"--record {tmp_path / 'run'}", "1 / 0\nafter = 1\n")
    assert "after" not in shell.user_ns
    assert dl.Run.open(tmp_path / "run").summary()["status"] == "failed"
    done = shell.run_cell("%%watch\nbefore = 1\nbefore / 0\n")
    assert isinstance(done.error_in_exec, ZeroDivisionError)
    shown = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert shown.count("ZeroDivisionError: division by zero") == 1
    assert "before / 0" in shown


def test_without_a_notebook_the_summary_comes_after_the_cell(
    started: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run_watched(started, "batches", "print('the cell')")
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "the cell"
    assert said[1].startswith("distlab: ")


def test_mistakes_are_named_with_what_is_right() -> None:
    for line, message in {
        "batchs": "there is no view 'batchs'. It accepts views (batches, devices, captures, reduc",
        "--recrod runs/x": "unrecognized arguments: --recrod",
        "--record": "--record: expected one argument",
        "--batch last": "--batch: invalid int value: 'last'",
        "--overwrite": "--overwrite needs --record",
        "--record runs/x one two": "there is no view 'two'",
        '--record "runs/x': "Close the quotation.",
    }.items():
        with pytest.raises(OptionError) as caught:
            parse(line)
        assert message in str(caught.value)
        assert isinstance(caught.value, UsageError)
