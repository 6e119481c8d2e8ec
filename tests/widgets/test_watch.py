"""`distlab.watch()`: how views begin, go on and end."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
import weakref
from typing import Any

import pytest

import distlab as dl
from distlab.errors import MissingExtraError, RecordError
from distlab.events import Chunk, Event, Unknown, sink
from distlab.widgets import Watch, watch
from distlab.widgets._notebook import Execution
from tests.page.test_feed import threads
from tests.synthetic import ListSource, beginning, steps, whole_run
from tests.ui.waiting import wait_until
from tests.widgets.conftest import FakeNotebook


def opened(source: Any = None, **options: Any) -> Watch:
    view = watch(ListSource(whole_run(30)) if source is None else source, **options)
    assert view is not None
    return view


def test_it_is_the_public_name() -> None:
    assert dl.watch is watch


def test_a_finished_run_is_shown_at_once(notebook: FakeNotebook) -> None:
    opened(batch=22)
    bundle = notebook.newest()
    assert "5 of 8" in bundle["text/html"]
    assert bundle["text/plain"].startswith("distlab: made-up, finished, 30 steps")


def test_the_live_view_draws_over_the_picture(notebook: FakeNotebook) -> None:
    view = opened()
    live = view._widget
    assert live is not None
    assert f'class="distlab-watch {live.host}"' in notebook.newest()["text/html"]
    assert live.summary["amounts"] == [[f"CPU:{replica}", "8"] for replica in range(8)]
    assert set(live.items) == {"batches", "devices", "reductions"}


def test_the_live_view_follows_the_run(notebook: FakeNotebook) -> None:
    events: list[Event | Unknown] = [*beginning()]
    view = opened(ListSource(events))
    assert view._widget is not None
    assert view._widget.summary["status"] == "waiting"
    events.extend(list(steps(23)))  # at once: it is being read
    wait_until(lambda: view._widget is not None and view._widget.summary["status"] == "live")
    assert [size for _, size in view._widget.summary["amounts"]][3:5] == ["5 of 8", "empty"]


def test_the_picture_is_up_to_date_when_a_cell_ends(notebook: FakeNotebook) -> None:
    events: list[Event | Unknown] = [*beginning()]
    opened(ListSource(events))
    events.extend(steps(23))
    assert notebook.after_cells is not None
    notebook.after_cells()
    assert "5 of 8" in notebook.newest()["text/html"]
    before = notebook.updates
    notebook.after_cells()
    assert notebook.updates == before


def test_closing_leaves_the_picture_and_nothing_else(notebook: FakeNotebook) -> None:
    before = threads()
    events: list[Event | Unknown] = [*beginning()]
    view = opened(ListSource(events))
    live = view._widget
    assert live is not None
    events.extend(steps(23))
    view.feed.pull()
    view.close()
    view.close()
    assert not view.live
    assert "5 of 8" in notebook.newest()["text/html"]
    assert notebook.after_cells is None
    assert live.comm is None
    wait_until(lambda: {*threads()} <= {*before})


def test_closed_views_are_garbage(notebook: FakeNotebook) -> None:
    view = opened()
    gone: list[weakref.ref[Any]] = [weakref.ref(part) for part in (view, view._widget, view.feed)]
    view.close()
    del view
    wait_until(lambda: gc.collect() >= 0 and all(ref() is None for ref in gone))


def test_executing_a_cell_again_replaces_its_views(notebook: FakeNotebook) -> None:
    source = ListSource(whole_run(30))
    first, second = opened(source), opened(source)
    assert first.live
    assert second.live
    notebook.execution = Execution("cell 1", "request 2")
    third = opened(source)
    assert [first.live, second.live, third.live] == [False, False, True]
    notebook.execution = Execution("cell 2", "request 3")
    opened(source)
    assert third.live


def test_views_of_one_source_share_what_was_read(notebook: FakeNotebook) -> None:
    source = ListSource(whole_run(30))
    assert opened(source).feed is opened(source).feed
    assert opened(source).feed is not opened().feed


def test_only_the_newest_four_stay_open(notebook: FakeNotebook) -> None:
    notebook.execution = Execution("", "")
    views = [opened() for _ in range(6)]
    assert [view.live for view in views] == [False, False, True, True, True, True]


def test_a_view_that_ends_its_cell_is_shown_once(notebook: FakeNotebook) -> None:
    view = opened()
    view._ipython_display_()
    assert [len(places) for places in notebook.outputs.values()] == [1]
    notebook.execution = Execution("cell 2", "request 2")
    view._ipython_display_()
    assert [len(places) for places in notebook.outputs.values()] == [2]


def test_an_error_of_the_source_is_noted_in_the_picture(notebook: FakeNotebook) -> None:
    class Breaking(ListSource):
        broken = False

        def since(self, cursor: int, limit: int = 10_000) -> Chunk:
            if self.broken:
                raise OSError("the disk is gone")
            return super().since(cursor, limit)

    source = Breaking(whole_run(30))
    view = opened(source)
    source.broken = True
    said = "This view stopped: OSError: the disk is gone"
    wait_until(lambda: said in notebook.newest()["text/html"])
    assert not view.live


def test_missing_packages_are_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "distlab.widgets._view.find_spec",
        lambda name: None if name == "anywidget" else find_spec(name),
    )
    with pytest.raises(MissingExtraError, match=r'pip install "distlab\[notebook\]"'):
        watch()


def test_without_a_recorder_there_is_nothing_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "in_force", sink.NULL)
    with pytest.raises(RecordError, match="DISTLAB_RECORD=off"):
        watch()


def test_a_script_prints_a_summary_and_loads_no_widgets() -> None:
    code = (
        "import sys, distlab as dl\n"
        "assert dl.watch() is None\n"
        "assert not {'ipywidgets', 'anywidget', 'IPython'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True, text=True, timeout=120, check=True, env=os.environ | {"HOME": "/tmp"},
    )  # fmt: skip
    assert done.stdout.splitlines()[:2] == [
        "distlab: no run yet, waiting, 0 steps",
        "No batch was divided yet. Run the cell that trains, and look here.",
    ]
