"""HEAD: the headers of a GET, without what the answer costs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from distlab.runs.run_file import RunFile
from distlab_dashboard import DashboardServer, exports, serve
from tests.synthetic import whole_run
from tests.ui.asking import ask

ALIKE = ("Cache-Control", "Content-Type", "Content-Disposition", "X-Content-Type-Options")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardServer]:
    folder = tmp_path_factory.mktemp("runs")
    for name in ("first", "second"):
        file = RunFile(folder / name, name)
        file.write(whole_run(20))
        file.close()
    made = serve(folder)
    yield made
    made.stop()


@pytest.mark.parametrize(
    "path",
    [
        *("", "?run=first", "health", "metrics", "metrics?run=first", "static/js/bokeh.min.js"),
        *("export/trace.json?run=first", "export/run.html?run=second"),
        *("?run=nothing", "metrics?run=nothing", "export/run.html?run=nothing", "nowhere"),
    ],
)
def test_a_head_has_the_headers_of_a_get_and_no_body(server: DashboardServer, path: str) -> None:
    asked, given = ask(server, path, method="HEAD"), ask(server, path)
    assert (asked.status, asked.body) == (given.status, b"")
    assert [asked.headers[name] for name in ALIKE] == [given.headers[name] for name in ALIKE]
    assert asked.headers["Content-Length"] != "0"  # unless it is not known


def test_a_head_makes_no_file_and_begins_no_session(
    server: DashboardServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a file was made")

    monkeypatch.setattr(exports, "_write", refuse)
    caplog.set_level(logging.INFO, "panel")
    for path in ("", "?run=first", "export/run.html?run=first", "export/trace.json?run=second"):
        assert ask(server, path, method="HEAD").status == 200
    assert [one.message for one in caplog.records if "created" in one.message] == []


def test_a_head_below_a_prefix_is_sent_on_as_a_get_is(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "first", "first")
    file.close()
    made = serve(tmp_path, prefix="lab")
    try:
        made.url = made.url.removesuffix("/")
        asked, given = (ask(made, "?run=first", method=method) for method in ("HEAD", "GET"))
        assert asked.status == given.status == 302
        assert asked.headers["Location"] == given.headers["Location"]
    finally:
        made.stop()
