"""The single views: each shows one idea, by the same mechanism as `watch()`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import distlab as dl
from distlab.control.loops import loops
from distlab.errors import ArgumentTypeError, NotARunError
from distlab.widgets import Batches, Devices, Placement, Reductions, Steps, View, _view, watch
from distlab.widgets._view_widget import _answer
from distlab.widgets._views import Watch
from tests.damaged import DAMAGES, damaged_run
from tests.patience import wait_until
from tests.synthetic import ListSource, beginning, placed, whole_run
from tests.widgets.conftest import FakeNotebook

SINGLE: dict[str, Callable[..., View]] = {
    "batches": Batches,
    "devices": Devices,
    "reductions": Reductions,
    "placement": Placement,
    "steps": Steps,
}


def live(view: View) -> Any:
    assert view._widget is not None
    return view._widget


PICTURES = {
    "batches": (["<img", ">5 of 8<"], "  CPU:3  5 of 8"),
    "devices": (["<img", "Busy over time"], "  CPU:0  "),
    "reductions": ([">inside train_step<", ">9.64 kB<"], "all-reduce inside train_step: "),
    "placement": (
        [">dense/kernel<", ">8.19\u00a0kB<", ">float32[64, 32] replicated<"],
        "  CPU:0  ",
    ),
    "steps": (["<img", "examples, on average: ", ">calls<", ">CPU:7<"], "  steps, on average"),
}


@pytest.mark.parametrize("name", SINGLE)
def test_each_view_shows_its_own_chart_and_no_other(notebook: FakeNotebook, name: str) -> None:
    view = SINGLE[name](ListSource([]))
    assert live(view).summary["amounts"] == []
    assert "yet" in live(view).summary["sentence"]
    assert all("yet" in text for text in notebook.newest().values())
    options = {"batch": 22} if name == "batches" else {}
    view = SINGLE[name](ListSource(whole_run(400)), **options)
    assert view.live
    panes = {"steps": ["rates", "timeline"]}.get(name, [name])
    assert list(live(view).items) == live(view).charts == panes
    assert all(getattr(live(view), pane) for pane in panes)
    assert live(view).summary["steps"].startswith("400 steps")
    html, text = PICTURES[name]
    shown = notebook.newest()
    assert [part for part in html if part not in shown["text/html"]] == []
    assert any(line.startswith(text) for line in shown["text/plain"].splitlines())


def test_devices_that_hold_the_same_share_a_column_of_the_picture(notebook: FakeNotebook) -> None:
    Placement(ListSource([*beginning(), placed(9, "last", [5], ["CPU:7"])]))
    html = notebook.newest()["text/html"]
    assert [name for name in re.findall(r"<th[^>]*>([^<]*)<", html) if "CPU" in name] == [
        "CPU:0",
        "CPU:1 to CPU:6",
        "CPU:7",
    ]
    assert ">6\u00a0\u00d7\u00a08.19\u00a0kB<" in html


def test_cells_that_are_too_narrow_have_no_text(notebook: FakeNotebook) -> None:
    for devices, written in ((8, True), (9, False)):
        view = Placement(ListSource([*beginning(devices)]))
        assert any(view_texts(live(view).placement)) == written


def view_texts(patches: dict[str, Any]) -> list[str]:
    columns = [dict(patch["data"]["entries"]) for patch in patches.values()]
    (cells,) = [one for one in columns if "variable" in one]
    return list(cells["text"])


def test_a_source_must_be_a_run(notebook: FakeNotebook) -> None:
    with pytest.raises(ArgumentTypeError, match="A view shows a run, got a str"):
        Devices("runs/first")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="batch must be a batch's number"):
        Batches(ListSource([]), batch=-1)


def test_a_script_prints_text_and_loads_no_widgets() -> None:
    code = (
        "import sys, distlab as dl\n"
        "assert dl.watch() is None\n"
        "view = dl.widgets.Placement()\n"
        "assert not view.live\n"
        "view.close()\n"
        "assert not {'ipywidgets', 'anywidget', 'IPython'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True, text=True, timeout=120, check=True, env=os.environ | {"HOME": "/tmp"},
    )  # fmt: skip
    head, batch, *rest = done.stdout.splitlines()
    assert head == "distlab: no run yet, waiting, 0 steps"
    assert batch == "No batches yet. Run the cell that trains, and look here."
    assert rest[-2:] == [head, "No variables yet."]


@pytest.fixture
def elements() -> Iterator[Iterator[int]]:
    controlled = iter(dl.controlled(range(1_000), name="training"))
    next(controlled)
    yield controlled
    for loop in loops():
        loop.stop()
    list(controlled)


def test_a_loop_of_this_process_has_buttons(
    notebook: FakeNotebook, elements: Iterator[int]
) -> None:
    view = watch()
    assert view is not None
    wait_until(lambda: live(view).loops)
    (shown,) = live(view).loops
    assert (shown["name"], shown["state"], shown["position"]) == ("training", "running", 1)
    next(elements)
    wait_until(lambda: live(view).loops[0]["position"] == 2)


def test_a_recorded_run_and_a_view_without_buttons_show_no_loops(
    notebook: FakeNotebook, elements: Iterator[int]
) -> None:
    for view in (watch(ListSource(whole_run(3))), Devices()):
        assert view is not None
        view.tick()
        assert live(view).loops == []


def test_a_click_reaches_the_loop_and_is_acknowledged(
    notebook: FakeNotebook, elements: Iterator[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    view = live(Batches())
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(type(view), "send", lambda _, content, __=None: sent.append(content))
    (loop,) = loops()
    strange: list[dict[str, object]] = [
        {"kind": "press", "loop": 10**9, "verb": "stop", "click": "1"},
        {"kind": "press", "loop": None, "verb": "stop"},
        {"kind": "press", "loop": 0, "verb": "__init__"},
        {"kind": "something else"},
        {},
    ]
    for content in strange:
        _answer(view, content, [])
    assert loop.state == "running"  # whatever else a page sends does nothing
    sent.clear()
    for verb, state in (("pause", "pausing"), ("resume", "running"), ("stop", "stopping")):
        _answer(view, {"kind": "press", "loop": loop.number, "verb": verb, "click": verb}, [])
        assert loop.state == state
    assert sent == [{"kind": "pressed", "click": verb} for verb in ("pause", "resume", "stop")]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:ColumnDataSource's columns must be of the same length")
def test_a_damaged_run_is_refused_and_leaves_no_view(
    notebook: FakeNotebook, tmp_path: Path
) -> None:
    for name, damage in DAMAGES.items():
        hidden = name in {"devices", "spans", "memory"}  # no view draws these
        told = f"The run in {tmp_path / name} can't be shown, because it holds what no recording"
        refused = pytest.raises(NotARunError, match=re.escape(told))
        folder = damaged_run(tmp_path / name, damage)
        with dl.Run.open(folder) as run, nullcontext() if hidden else refused:
            Watch(run).close()
    assert _view._open_views is not None
    assert _view._open_views.views == []


def test_a_batch_that_is_not_there_is_said_to_lack(notebook: FakeNotebook) -> None:
    view = Batches(ListSource(whole_run(30)), batch=500)
    assert "Batch 500 is not there: 30 batches so far, from 0. Batch 29 is shown." in str(view)
    assert not any("not there" in note for note in view._summary.notes[1:])
    assert "not there" not in str(Batches(ListSource(whole_run(30)), batch=29))
    assert "not there" not in str(Devices(ListSource(whole_run(30))))
