"""Runs, events, loop control and downloads on the served page."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import jax.numpy as jnp
import pytest
from bokeh.document import Document
from bokeh.io.doc import patch_curdoc
from msgspec import structs

import distlab as dl
from distlab.control.loops import loops
from distlab.events import Metric, Placement, Step
from distlab.page import report
from distlab.recording import RingRecorder
from distlab.runs.run_file import RunFile
from distlab_dashboard import DashboardServer
from tests.patience import LIMIT_SECONDS, wait_until
from tests.synthetic import ListSource, whole_run
from tests.ui.asking import ask
from tests.ui.conftest import Pages, Served, ended, serving


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three runs, one of them deeper, and something beside it that is private."""
    root = tmp_path_factory.mktemp("library")
    runs = {"runs/first": 60, "runs/deep/second": 20, "runs/third": 9, "private": 5}
    for name, count in runs.items():
        file = RunFile(root / name, name)
        file.write(whole_run(count))
        file.close()
    return root / "runs"


@pytest.fixture(scope="module")
def library(folder: Path) -> Iterator[DashboardServer]:
    with serving(folder) as made:
        yield made


def test_the_runs_of_a_folder_are_listed_opened_and_compared(
    library: DashboardServer, new_page: Pages
) -> None:
    page = new_page().open(library.url)
    rows = page.page.locator(".runs tbody tr")
    page.page.wait_for_function("() => document.querySelectorAll('.runs tbody tr').length === 3")
    assert sorted(rows.locator("th").all_inner_texts()) == ["deep/second", "first", "third"]
    assert page.page.locator(".timebar").is_hidden()
    assert page.page.locator('.tabs a[data-page="overview"]').is_hidden()
    page.page.fill(".run-search", "FIRST")
    assert page.page.locator(".runs tbody tr:visible").count() == 1
    page.page.click(".runs tbody tr:visible a")
    page.page.wait_for_selector("html[data-ready=true]")
    page.wait_for_text("steps", "60 of 60")
    assert page.page.url.endswith("?run=first#overview")
    page.tab("runs")
    assert page.page.locator(".runs tbody tr").count() == 3
    assert page.page.locator(".compare-runs").is_disabled()
    for name in ("first", "deep/second"):
        page.page.check(f'.runs input[value="{name}"]')
    page.page.click(".compare-runs:text('Compare 2 runs')")
    page.shown("compare")
    page.page.wait_for_selector(".numbers tbody tr")
    assert page.page.url.endswith("?run=first&compare=deep%2Fsecond#compare")
    assert page.page.locator(".numbers thead th").all_inner_texts()[1:3] == ["first", "deep/second"]
    steps = page.page.locator(".numbers tbody tr", has=page.page.locator("th", has_text="steps"))
    assert steps.first.locator("td").all_inner_texts() == ["60", "20", "\u00d7 0.333"]
    settings = page.page.locator(".settings tbody tr")
    assert settings.first.inner_text().split("\t") == ["planned steps", "60", "20", "differs"]
    assert settings.nth(1).get_attribute("data-last") == "same"
    curves = page.data("compared_runs", "comparison_0")
    assert [len(values) for values in curves["value"]] == [60, 20]
    assert curves["value"][0][:20] == curves["value"][1]
    page.page.goto(page.page.url.replace("#compare", "&compare=third#compare"))
    page.shown("compare")
    page.page.wait_for_selector(".numbers tbody tr")
    assert len(page.data("compared_runs", "comparison_0")["name"]) == 3
    page.tab("runs")
    assert page.page.locator(".runs input:checked").count() == 3


def test_nothing_outside_of_the_folder_can_be_opened(library: DashboardServer) -> None:
    for name in ("../private", "/etc", "first/../../private", "nothing", "\x00", "x" * 5_000, ""):
        for path in (f"?run={quote(name)}", f"?run=first&compare={quote(name)}"):
            answer = ask(library, path)
            assert answer.status == 404
            assert b"made-up" not in answer.body
            assert b"not one of them" in answer.body
        assert ask(library, f"export/run.html?run={quote(name)}").status == 404


def test_traffic_is_drawn_and_a_run_is_downloaded(
    library: DashboardServer, new_page: Pages
) -> None:
    page = new_page().open(f"{library.url}?run=first#reductions")
    page.page.wait_for_function(
        "() => Bokeh.documents[0].get_model_by_name('traffic_notes').get_column('text').length > 0"
    )
    drawn = page.data("one_reduction", "traffic")
    # A ring of 8: each device sends 2 x 7/8 of its 9,640 bytes.
    assert sum(drawn["bytes"]) == pytest.approx(8 * 2 * 7 / 8 * 9_640)
    assert {(a, b) for a, b in zip(drawn["sender"], drawn["receiver"], strict=True)} == {
        (f"CPU:{n}", f"CPU:{(n + 1) % 8}") for n in range(8)
    }
    page.page.locator(".reductions tbody button").nth(1).click()
    page.page.wait_for_function(
        "() => Bokeh.documents[0].get_model_by_name('traffic_notes')"
        ".get_column('text')[0]?.startsWith('reduce MEAN')"
    )
    to_one = page.data("one_reduction", "traffic")
    assert "CPU:0" in to_one["receiver"]
    assert page.page.locator(".reductions [aria-pressed=true]").all_inner_texts() == ["reduce MEAN"]
    with page.page.expect_download() as download:
        page.page.click('[data-export="trace.json"]')
    trace = json.loads(Path(download.value.path()).read_text())
    assert trace["otherData"]["run"] == "runs/first"
    assert download.value.suggested_filename == "first-trace.json"
    with page.page.expect_download() as download:
        page.page.click('[data-export="run.html"]')
    saved = Path(download.value.path())
    assert saved.stat().st_size < 5_000_000
    opened = new_page()
    opened.page.goto(f"file://{saved.rename(saved.with_suffix('.html'))}")
    opened.page.wait_for_selector("html[data-ready=true]")
    assert opened.text("steps") == "60 of 60"
    assert opened.page.locator(".timebar").is_hidden()
    assert opened.foreign == [opened.page.url.partition("#")[0]]  # the file itself
    opened.foreign.clear()


def test_events_are_filtered_searched_and_shown_whole(served: Served, new_page: Pages) -> None:
    events = whole_run(60)
    wicked = "<img src=x onerror=alert(1)>"
    events.append(Metric(time_ns=events[-1].time_ns, step=59, values={wicked: 1.0}))
    source = ListSource(events)
    server = served(source)
    page = new_page().open(f"{server.url}#events")
    page.wait_for_text("event_note", "the newest 100 that fit")
    first = page.page.locator(".events tbody tr").first
    assert first.locator("td").all_inner_texts()[1:] == [
        "metric",
        f"step=59 values={{{wicked}: 1}}",
    ]
    assert page.page.locator('img[src="x"]').count() == 0
    page.page.click(".older")
    page.page.wait_for_function(
        "(n) => document.querySelector('.events tbody th')?.textContent === n",
        arg=str(len(events) - 101),
    )
    page.page.select_option(".event-kind", "placement")
    count = sum(isinstance(event, Placement) for event in events)
    page.wait_for_text("event_note", f"{count} found, {len(events)} searched")
    page.page.fill(".event-text", "head/bias")
    page.wait_for_text("event_note", f"1 found, {len(events)} searched")
    page.page.click(".events tbody button")
    page.page.wait_for_selector(".whole")
    kind, _, text = page.page.locator(".whole").inner_text().partition("\n")
    assert kind == "placement"
    assert json.loads(text)["name"] == "head/bias"
    assert "kind=placement" in page.page.url
    assert "text=head" in page.page.url
    page.page.fill(".event-text", "nothing like this")
    page.wait_for_text("event_note", f"0 found, {len(events)} searched")
    assert page.page.get_by_text("No event matches.").is_visible()
    page.page.fill(".event-text", "")
    page.page.select_option(".event-kind", "step")
    last = next(e for e in reversed(source.events) if isinstance(e, Step))
    source.events.append(structs.replace(last, step=60))
    page.page.wait_for_function(
        "() => document.querySelector('.events tbody td:last-child')"
        "?.textContent.startsWith('step=60 ')"
    )
    page.page.goto(f"{server.url}#events?event=5000")
    page.page.reload()
    whole = page.page.locator("pre.whole")
    whole.wait_for()
    assert whole.inner_text().startswith("There is no event 5\u202f000: ")


def test_a_program_of_epochs_is_paused_stepped_and_stopped(
    recorder: RingRecorder, served: Served, new_page: Pages, tmp_path: Path
) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    dataset = dl.data.Dataset.range(20).batch(4)
    done: list[int] = []

    def train() -> None:
        batches = strategy.experimental_distribute_dataset(dataset)
        for epoch in range(1_000_000):
            for batch in dl.controlled(batches, name="fit <b>"):
                strategy.run(jnp.sum, (batch,))
                done.append(epoch)
                threading.Event().wait(0.002)
            if recording.stopped:
                break

    with dl.record(tmp_path / "run", probe=False, total_steps=10**6) as recording:
        server = served(recording)
        thread = threading.Thread(target=train, daemon=True)
        thread.start()
        try:
            page = new_page().open(server.url)
            says = page.page.locator(".loops span")
            wait_until(lambda: len(done) > 12, "the third epoch")
            buttons = page.page.locator(".loops button").all()
            places = [button.bounding_box() for button in buttons]
            page.page.click(".loops [data-order=pause]")
            page.page.wait_for_selector(".loops [data-order=step]:enabled")
            wait_until(lambda: loops()[0].state == "paused", "the pause")
            # Under the pointer is Pause, as before.
            assert [button.bounding_box() for button in buttons] == places
            assert page.page.locator(".loops b").inner_text() == "fit <b>"
            for place, text in (("status_text", "paused"), ("rate", "0"), ("rate_note", "paused")):
                page.wait_for_text(place, text)
            assert page.text("eta").endswith(" so far")  # no time left
            before = len(done)
            page.page.click(".loops [data-order=step]")
            wait_until(lambda: len(done) == before + 1, "one step")
            wait_until(lambda: loops()[0].state == "paused", "the pause after it")
            page.page.wait_for_function(
                "(n) => document.querySelector('.loops span').textContent"
                " === `paused, ${n} in this loop`",
                arg=loops()[0].position,
            )
            assert says.inner_text().startswith("paused")
            page.page.click(".loops [data-order=resume]")
            wait_until(lambda: len(done) > before + 20, "the loop to go on")
            page.wait_for_text("status_text", "live")
            page.page.click(".loops [data-order=stop]")
            thread.join(LIMIT_SECONDS)
            assert not thread.is_alive()
            assert recording.stopped
            page.page.wait_for_selector(".loops", state="hidden")
        finally:
            for loop in loops():
                loop.stop()


@pytest.mark.slow
def test_a_page_is_written_while_a_server_closes_another(tmp_path: Path) -> None:
    """The current document is the same for all threads: here, one that is just going."""
    going = Document()
    going.callbacks.destroy()
    with patch_curdoc(going):
        report.write(ListSource([]), "made-up", tmp_path / "run.html")
    assert "made-up" in (tmp_path / "run.html").read_text()


def test_a_run_with_a_name_of_any_letters_can_be_downloaded(tmp_path: Path, served: Served) -> None:
    dl.record(tmp_path / "été 日本").close()
    answer = ask(served(tmp_path), f"export/trace.json?run={quote('été 日本')}")
    assert answer.status == 200
    assert answer.headers["Content-Disposition"] == (
        'attachment; filename="-t-----trace.json"; '
        f"filename*=UTF-8''{quote('été-日本-trace.json')}"
    )
    assert json.loads(answer.body)["traceEvents"]


_CLOSER = """
(before) => {
  const root = Bokeh.documents[0].roots().find((model) => model.name === "timeline")
  const plot = Array.from(root.references()).find((model) => model.type === "Figure")
  const {start, end} = plot.x_range
  return end - start < before ? [start, end] : null
}
"""


def test_zooming_into_the_steps_shows_single_ones(served: Served, new_page: Pages) -> None:
    page = new_page().open(f"{served(ended(whole_run(5_000))).url}#steps")
    spans = (
        "() => new Set(Bokeh.documents[0].get_model_by_name('timeline_spans')"
        ".get_column('number')).size"
    )
    page.page.wait_for_function(
        "() => Bokeh.documents[0].get_model_by_name('timeline_lanes').get_column('lane').length"
        " === 10"
    )
    # Early steps are not among the newest 2,000: the page asks for them.
    box = page.page.locator('section[data-page="steps"] .bk-Figure').bounding_box()
    assert box is not None
    page.page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.5 * box["height"])
    seen = [0.0, 50.0]
    for _ in range(60):
        if seen[1] - seen[0] < 0.5:
            break
        page.page.mouse.wheel(0, -120)
        seen = page.page.wait_for_function(_CLOSER, arg=seen[1] - seen[0]).json_value()
    first, last = ((at - 0.2) / 0.01 for at in seen)
    assert 0 < first < last < 2_000
    page.page.wait_for_function(
        "([n0, n1]) => Array.from(Bokeh.documents[0].get_model_by_name('timeline_spans')"
        ".get_column('number')).some((number) => Number(number) >= n0 && Number(number) <= n1)",
        arg=[first, last],
    )
    assert page.page.evaluate(spans) < 400
    page.page.click(".show-all")
    page.page.wait_for_function(
        """() => {
          const root = Bokeh.documents[0].roots().find((model) => model.name === "timeline")
          const plot = Array.from(root.references()).find((model) => model.type === "Figure")
          return plot.x_range.end > 40
        }"""
    )


def test_the_loss_has_a_log_axis_and_a_running_average(served: Served, new_page: Pages) -> None:
    page = new_page().open(served(ended(whole_run(3_000))).url)
    plot = page.page.locator('section[data-page="overview"] .bk-Figure').first
    plot.hover()
    reached = """() => {
      const root = Bokeh.documents[0].roots().find((model) => model.name === "loss")
      const plot = Array.from(root.references()).find((model) => model.type === "Figure")
      const behind = (one) => one.visible && one.glyph.line_alpha?.value == 0.25
      return [plot.y_range.end, plot.renderers.filter(behind).length]
    }"""
    linear, none = page.page.evaluate(reached)
    assert (linear > 2, none) == (True, 0)
    plot.get_by_title("Logarithmic axis").click()
    page.page.wait_for_function(f"() => ({reached})()[0] < 1")
    plot.get_by_title("Running average of about ten points, with the points behind").click()
    page.page.wait_for_function(f"() => ({reached})()[1] == 1")
