"""A real training run on eight devices, watched in a real browser from its folder."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import distlab as dl
from distlab.demo import digits, training
from distlab.events import Compile, Sharding, Step
from tests.ui.conftest import Pages, Served, Watched

STEPS = 26
LIMIT_SECONDS = 60


class Training(threading.Thread):
    """Trains the demo's network, and records it, in a thread of its own.

    It pauses after the steps named in `pauses`, each until its event is set.
    """

    def __init__(self, folder: Path, *pauses: int) -> None:
        super().__init__()
        self.folder = folder
        self.pauses = {step: threading.Event() for step in pauses}
        self.recording = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.train()
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self.error = error
        finally:
            self.recording.set()

    def train(self) -> None:
        strategy = dl.MirroredStrategy()
        with dl.record(self.folder, total_steps=STEPS) as run:
            self.recording.set()
            with strategy.scope():
                params = training.variables()
            training.train(
                strategy, params, digits.load(), run=run, steps=STEPS, report=self.report
            )

    def report(self, done: int, loss: Any) -> None:
        del loss
        if done in self.pauses:
            assert self.pauses[done].wait(LIMIT_SECONDS), "nobody let the training go on"


def facts(page: Watched) -> dict[str, Any]:
    found: dict[str, Any] = page.page.evaluate(
        "() => JSON.parse(Bokeh.documents[0].get_model_by_name('facts').get_column('json')[0])"
    )
    return found


def test_a_run_is_seen_live_and_again_from_its_folder(
    tmp_path: Path, served: Served, new_page: Pages
) -> None:
    training = Training(tmp_path / "run", 5, 6)
    training.start()
    assert training.recording.wait(LIMIT_SECONDS)
    server = served(training.folder)
    try:
        page = new_page().open(f"{server.url}#reductions")
        for steps in (5, STEPS):
            page.wait_for_times(str(steps))
            check_reductions(page, steps)
            if steps in training.pauses:
                training.pauses[steps].set()
                page.wait_for_text("status_text", "live")  # of a step that was taken just now
                training.pauses[steps + 1].set()
        page.wait_for_text("status_text", "finished")
        training.join(LIMIT_SECONDS)
        assert training.error is None
        page.tab("overview")
        check_against_recording(page, training.folder)
        live = facts(page)
    finally:
        for pause in training.pauses.values():
            pause.set()
        training.join(LIMIT_SECONDS)
    page = new_page().open(served(training.folder).url)
    page.wait_for_text("steps", f"{STEPS} of {STEPS}")
    page.tab(live["page"])
    assert facts(page) == live
    run = dl.Run.open(training.folder)
    steps_taken = list(run.events("step"))
    assert len(steps_taken) == len(list(run.events("reduction"))) == STEPS
    # A run file begins with all programs of its process, those of earlier tests included.
    taken = {e.program for e in steps_taken if isinstance(e, Step)}
    modes = {e.mode for e in run.events("compile") if isinstance(e, Compile) and e.program in taken}
    assert modes == {"traced", "ragged"}


def check_reductions(page: Watched, steps: int) -> None:
    """Compares the table with the bars, and both with the steps that were taken."""
    table, bars = page.table(), page.data("reductions", "reduction_bars")
    assert table["times"] == bars["count_text"] == [str(steps)] * 3
    assert sorted(table["kind"]) == ["all-reduce", "all-reduce", "reduce MEAN"]
    assert bars["name"][0] == "all-reduce of 8 arrays and 1 number"
    assert sorted(bars["name"][1:]) == ["all-reduce of 1 number", "reduce MEAN, from Python"]
    assert table["what"][0] == "8 arrays and 1 number, the largest like dense/kernel"
    assert bars["text"] == [
        f"{total} = {steps} \u00d7 {each}"
        for total, each in zip(table["total bytes"], table["bytes each"], strict=True)
    ]
    assert table["how"][0].startswith("psum at training.py:")


def check_against_recording(page: Watched, folder: Path) -> None:
    """Compares what the browser shows with what the run recorded."""
    shardings = [e for e in dl.Run.open(folder).events("sharding") if isinstance(e, Sharding)]
    assert len(shardings) == STEPS
    chips = page.page.locator('[data-list="device_names"] li').all_inner_texts()
    assert len(chips) == 8
    loss = page.data("loss", "metrics")["value"][0]
    assert len(loss) == STEPS
    assert sum(loss[-5:]) < sum(loss[:5])
    page.tab("batches")
    partial = next(n for n, event in enumerate(shardings) if sum(event.sizes) % 8)
    for number in (partial, STEPS - 1):
        page.page.fill(".number input", str(number))
        page.page.keyboard.press("Enter")
        page.wait_for_text("batch_number", str(number))
        rows = page.page.locator(".sizes li")
        shown = rows.evaluate_all("rows => rows.map((row) => Number(row.dataset.size))")
        assert shown == shardings[number].sizes
        assert rows.locator("span").all_inner_texts() == chips
    page.tab("placement")
    assert "dense/kernel" in page.data("placement", "placement")["variable"]
    page.tab("reductions")
    page.wait_for_times(str(STEPS))
    check_reductions(page, STEPS)
