"""Advice, captures and the recorder's own cost on the page, and the page as one file."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.events import Capture
from distlab.recording import RingRecorder
from tests.ui.conftest import Pages, Served

SLOW = 2
SIZE = 128
"""Of the matrices: so large that what a step does besides its loop is a hundredth of it."""


class Straggling(threading.Thread):
    """A loop in which one of four replicas does 20 times the work, until it is stopped."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.recording: dl.recording.Recording | None = None
        self.begun = threading.Event()
        self.stop = threading.Event()

    def run(self) -> None:
        strategy = dl.MirroredStrategy([f"CPU:{n}" for n in range(4)])

        def step(x: Any) -> Any:
            context = dl.get_replica_context()
            rounds = jnp.where(context.replica_id_in_sync_group == SLOW, 400, 20)
            y = jax.lax.fori_loop(0, rounds, lambda _, a: jnp.tanh(a @ a), x)
            return context.all_reduce("MEAN", y)

        value = strategy.experimental_distribute_values_from_function(lambda _: jnp.eye(SIZE) * 0.5)
        with dl.record(self.folder) as self.recording:
            while not self.stop.is_set():
                value = strategy.run(step, (value,))
                self.begun.set()


@pytest.fixture
def straggling(recorder: RingRecorder, tmp_path: Path) -> Iterator[Straggling]:
    loop = Straggling(tmp_path / "run")
    loop.start()
    assert loop.begun.wait(60)
    limit = time.monotonic() + 60
    while not any(isinstance(e, Capture) for e in recorder.ring.since(0).events):
        assert time.monotonic() < limit, "the recorder takes a capture by itself"
        time.sleep(0.05)
    yield loop
    loop.stop.set()
    loop.join(60)
    assert not loop.is_alive()


def test_a_page_names_the_slow_replica_and_captures_on_a_click(
    straggling: Straggling, served: Served, new_page: Pages
) -> None:
    server = served(straggling.recording)
    page = new_page(width=800, scheme="dark").open(server.url)
    advice = page.page.locator(".advice li").filter(has_text="slow replica")
    # It is found by times until profiles hold enough steps to find it by work.
    advice.filter(has_text="times the work of the others").wait_for()
    assert advice.locator("h3").inner_text() == f"slow replica replica {SLOW}"
    assert re.search(r"has (19|20|21)\.\d times the work of the others", advice.inner_text())
    page.page.wait_for_function(
        "/of loop time.*of one core in the background/"
        ".test(document.querySelector('[data-text=cost]').textContent)"
    )
    advice.locator("a").click()
    page.page.wait_for_selector('section[data-page="devices"]:not([hidden])')
    button = page.page.locator(".take")
    button.click()
    page.page.wait_for_function(
        "document.querySelector('[data-text=capture_note]').textContent.includes('by you')"
    )
    page.page.wait_for_function("!document.querySelector('.take').disabled")
    spans = page.data("captured", "captured_spans")
    computing = np.zeros(4)
    for y, begin, end, what in zip(
        spans["y"], spans["begin"], spans["end"], spans["what"], strict=True
    ):
        computing[int(-y)] += (end - begin) * (what == "computing")
    assert computing.argmax() == SLOW
    assert page.data("captured", "captured")["device"] == [f"CPU:{n}" for n in range(4)]
    check_the_folder(straggling, served, new_page)


def check_the_folder(straggling: Straggling, served: Served, new_page: Pages) -> None:
    """Its page offers no capture, since no process of the run serves it; nor does its export."""
    straggling.stop.set()
    straggling.join(60)
    page = new_page().open(served(straggling.folder).url)
    page.tab("devices")
    assert page.page.locator(".take").is_hidden()
    page.page.wait_for_selector("section[data-page=devices] .legend")
    with dl.Run.open(straggling.folder) as run:
        path = run.export(straggling.folder.with_name("run.html"))
    page = new_page()
    page.page.goto(path.as_uri())
    page.page.wait_for_selector("html[data-ready=true]")
    page.foreign.clear()  # the file itself
    assert page.page.locator(".advice li h3").inner_text() == f"slow replica replica {SLOW}"
    assert page.page.locator(".take").is_hidden()
    assert "waiting for others" in page.data("captured", "captured_spans")["what"]
