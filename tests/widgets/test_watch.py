"""`distlab.watch()`: how views begin, go on and end."""

from __future__ import annotations

import gc
import importlib.util
import weakref
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.errors import MissingExtraError, RecordError
from distlab.events import Chunk, Event, Lost, Unknown, sink
from distlab.recording import RingRecorder
from distlab.widgets import Watch, watch
from distlab.widgets._notebook import Execution
from tests.page.test_feed import threads
from tests.patience import wait_until
from tests.synthetic import START_NS, ListSource, beginning, steps, whole_run
from tests.widgets.conftest import FakeNotebook


def opened(source: Any = None, **options: Any) -> Watch:
    view = watch(ListSource(whole_run(30)) if source is None else source, **options)
    assert view is not None
    return view


def test_a_finished_run_is_shown_at_once(notebook: FakeNotebook) -> None:
    live = opened(batch=22)._widget
    bundle = notebook.newest()
    assert "5 of 8" in bundle["text/html"]
    assert bundle["text/plain"].startswith("distlab: made-up, finished, 30 steps")
    assert live is not None  # it draws over the picture
    assert f'class="distlab-watch {live.host}"' in bundle["text/html"]
    assert live.summary["amounts"][2:4] == [["CPU:2", "8"], ["CPU:3", "5 of 8"]]
    assert set(live.items) == {"loss", "batches", "devices", "reductions"}
    assert live.summary["steps"].split("; ")[1].startswith("loss 1.")


def test_view_and_picture_follow_the_run(notebook: FakeNotebook) -> None:
    events: list[Event | Unknown] = [*beginning()]
    view = opened(ListSource(events))
    assert view._widget is not None
    assert view._widget.summary["status"] == "waiting"
    events.extend(list(steps(23)))  # at once: it is being read
    wait_until(lambda: view._widget is not None and view._widget.summary["status"] == "live")
    assert [size for _, size in view._widget.summary["amounts"]][3:5] == ["5 of 8", "empty"]
    assert notebook.after_cells is not None
    notebook.after_cells()
    assert "5 of 8" in notebook.newest()["text/html"]
    before = notebook.updates
    notebook.after_cells()
    assert notebook.updates == before


def test_view_and_picture_have_new_advice(notebook: FakeNotebook) -> None:
    events: list[Event | Unknown] = [*beginning()]
    view = opened(ListSource(events))
    events.extend([*steps(23), Lost(time_ns=START_NS, count=123, reason="disk full")])
    wait_until(lambda: "23 steps" in str(view))
    assert notebook.after_cells is not None
    notebook.after_cells()  # sooner than the next regular renewal
    assert view._widget is not None
    assert any("123 events were not recorded." in note for note in view._widget.summary["notes"])
    assert "Advice: 123 events were not recorded." in notebook.newest()["text/html"]


def test_the_last_recording_alone_is_named_and_counted(
    notebook: FakeNotebook, recorder: RingRecorder, tmp_path: Path
) -> None:
    strategy = dl.MirroredStrategy(["CPU:0"])
    for name, count in (("first", 5), ("second", 3)):
        with dl.record(tmp_path / name, probe=False):
            for _ in range(count):
                strategy.run(jnp.sum, (jnp.ones(2),))
    assert str(watch()).startswith("distlab: second, finished, 3 steps")


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
    gone: list[weakref.ref[Any]] = [weakref.ref(part) for part in (view, live, view.feed)]
    del view, live
    wait_until(lambda: gc.collect() >= 0 and all(ref() is None for ref in gone))


@pytest.mark.slow
def test_executing_a_cell_again_replaces_its_views(notebook: FakeNotebook) -> None:
    source = ListSource(whole_run(3))
    first, second = opened(source), opened(source)
    assert (first.live, second.live) == (True, True)
    assert first.feed is second.feed
    notebook.execution = Execution("cell 1", "request 2")
    third = opened(source)
    assert [first.live, second.live, third.live] == [False, False, True]
    notebook.execution = Execution("cell 2", "request 3")
    views = [opened(source) for _ in range(4)]
    assert [third.live, *(view.live for view in views)] == [False, True, True, True, True]


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
