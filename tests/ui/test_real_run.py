"""A real training run on eight devices, watched in a real browser from its folder."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distlab as dl
from distlab.demo import digits, training
from distlab.events import Sharding
from distlab_dashboard import serve

STEPS = 50
Pages = Callable[..., Any]


class Training(threading.Thread):
    """Trains the demo's network, and records it, in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
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
                strategy, params, digits.load(), run=run, steps=STEPS, report=lambda *_: None
            )


def facts(page: Any) -> dict[str, Any]:
    found: dict[str, Any] = page.page.evaluate(
        "() => JSON.parse(Bokeh.documents[0].get_model_by_name('facts').get_column('json')[0])"
    )
    return found


def test_a_run_is_seen_live_and_again_from_its_folder(tmp_path: Path, new_page: Pages) -> None:
    training = Training(tmp_path / "run")
    training.start()
    assert training.recording.wait(60)
    server = serve(training.folder)
    try:
        page = new_page().open(server.url)
        page.wait_for_text("status_text", "finished")
        training.join(60)
        assert training.error is None
        page.wait_for_text("steps", f"{STEPS} of {STEPS}")
        check_against_recording(page, training.folder)
        live = facts(page)
    finally:
        server.stop()
        training.join(60)

    again = serve(training.folder)
    try:
        page = new_page().open(again.url)
        page.wait_for_text("steps", f"{STEPS} of {STEPS}")
        assert facts(page) == live
    finally:
        again.stop()


def check_against_recording(page: Any, folder: Path) -> None:
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
    for number in (0, partial, STEPS - 1):
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
    kinds = page.data("reductions", "reductions")
    assert "all-reduce" in kinds["kind"]
    assert STEPS in kinds["count"]
