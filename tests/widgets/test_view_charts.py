"""The charts of a view as JSON for a page."""

from __future__ import annotations

import gzip
import json
from typing import Any

import bokeh
import pytest
from bokeh.document import Document
from bokeh.io.doc import patch_curdoc

from distlab.events import Capture
from distlab.folds import Folds
from distlab.page.charts import CHARTS
from distlab.widgets import Watch
from distlab.widgets._front_end import bokehjs
from distlab.widgets._view_charts import ViewCharts
from distlab.widgets._view_widget import ViewWidget, _answer
from tests.synthetic import beginning, steps, whole_run

CAPTURE = Capture(
    time_ns=100, start_ns=0, strategy=0, steps=1, asked_by="user", devices=["CPU:0"],
    compute_ns=[90], waiting_ns=[0], copy_ns=[0], idle_ns=[10], spans=[b""], spans_left_out=0,
    profile_bytes=0, cost_ns=0,
)  # fmt: skip
NAMES = [name for name, entry in CHARTS.items() if entry.notebook]


def columns_of(patches: dict[str, Any], wanted: str) -> dict[str, Any]:
    """The columns of the source that has a column of this name."""
    for patch in patches.values():
        columns = dict(patch["data"]["entries"])
        if wanted in columns:
            return columns
    raise AssertionError(f"no source has a column {wanted!r}")


def test_each_chart_is_sent_as_json_when_it_has_data() -> None:
    folds = Folds()
    charts = ViewCharts(NAMES, batch=22)
    assert (charts.update(folds), charts.items) == ({}, {})
    folds.add([*whole_run(30), CAPTURE])
    changed = charts.update(folds)
    assert set(changed) == set(charts.items) == set(NAMES)
    json.dumps([changed, charts.items], allow_nan=False)
    columns = columns_of(changed["batches"], "state")
    assert columns["state"] == [*[""] * 4, *["empty"] * 4]
    assert columns["text"][:4] == ["8", "8", "8", "5 of 8"]


def test_a_view_opens_while_a_server_closes_a_page() -> None:
    """The current document is the same for all threads: here, one that is just going."""
    folds = Folds()
    folds.add(whole_run(30))
    going = Document()
    going.callbacks.destroy()
    charts = ViewCharts(["batches"])
    with patch_curdoc(going):
        charts.update(folds)
    assert set(charts.items) == {"batches"}


@pytest.mark.slow
def test_of_very_many_devices_neighbours_share_rows() -> None:
    folds = Folds()
    folds.add([*beginning(1_024), *steps(33, replicas=1_024, batch=4_096, source=10_000)])
    charts = ViewCharts(NAMES)
    changed = charts.update(folds)
    assert len(columns_of(changed["placement"], "ink")["device"]) % 64 == 0
    assert len(set(columns_of(changed["placement"], "ink")["device"])) == 64
    assert len(columns_of(changed["batches"], "state")["state"]) == 32
    assert len(json.dumps(changed)) < 1_000_000


def test_only_data_that_changed_is_sent() -> None:
    folds = Folds()
    folds.add([*beginning(), *steps(4)])
    charts = ViewCharts(Watch.panes)
    charts.update(folds)
    items = dict(charts.items)
    assert charts.update(folds) == {}
    folds.add([event for event in steps(1, first=4) if type(event).__name__ == "Sharding"])
    assert set(charts.update(folds)) == {"batches"}
    assert charts.items == items  # a chart itself stays as it was sent


def test_bokehjs_is_the_installed_version_small_and_read_once() -> None:
    script = bokehjs()
    assert len(script) < 500_000
    assert f'"{bokeh.__version__}"' in gzip.decompress(script).decode()
    assert bokehjs() is script


def test_bokehjs_is_sent_once_a_kernel_and_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(ViewWidget, "_has_sent", False)
    monkeypatch.setattr(ViewWidget, "send", lambda *sending: sent.append(len(sending[2][0])))
    views = [ViewWidget("host", ("batches",), batch=None, buttons=False) for _ in range(3)]
    assert sent == [len(bokehjs())]
    _answer(views[2], {"kind": "bokehjs"}, [])
    assert sent == [len(bokehjs())] * 2
    for view in views:
        view.close()
