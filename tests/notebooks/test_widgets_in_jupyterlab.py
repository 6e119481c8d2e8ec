"""Single views, buttons and the explorer, used by hand in a real JupyterLab."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Error, Page

from tests.notebooks.lab import LIVE, Lab, Seen

PROGRAM = """
import time
from pathlib import Path

import distlab as dl
dl.use_cpu_devices(8)
import jax.numpy as jnp
import numpy as np

strategy = dl.MirroredStrategy()
rows = np.random.default_rng(0).random((60, 8, 8), np.float32)
dataset = dl.data.Dataset.from_tensor_slices(rows).batch(29)
with strategy.scope():
    w = dl.Variable(jnp.zeros((64, 10)), name="w")

def step(x):
    w.assign_add(dl.get_replica_context().all_reduce("SUM", jnp.full((64, 10), x.sum())))

def batches():
    while not Path("enough").exists():
        yield from strategy.experimental_distribute_dataset(dataset)

def train():
    for x in dl.controlled(batches(), name="training"):
        strategy.run(step, args=(x,))
        time.sleep(0.05)
"""
POSITION = r"(el) => Number(el.textContent.match(/(\d+) in this loop/)[1])"
TOLD = ".loop .told"
MOVED_BY_LONGER_TEXTS = """
(live) => {
  const place = () => live.querySelector(".stop").getBoundingClientRect().y
  const before = place()
  for (const text of live.querySelectorAll("header, .amounts")) text.append(" longer".repeat(200))
  return place() - before
}
"""


@pytest.fixture(autouse=True)
def unhurried(lab: Lab) -> Iterator[Path]:
    """Loops go on until this file is made; and the settings are JupyterLab's own."""
    enough = lab.folder / "enough"
    enough.unlink(missing_ok=True)
    lab.use_theme("Light")
    lab.send_comms_over_subshells(yes=True)
    yield enough
    enough.touch()


def position(page: Page) -> int:
    found: int = page.locator(TOLD).first.evaluate(POSITION)
    return found


def wait_for_loop(page: Page, state: str) -> None:
    try:
        page.wait_for_selector(f"{LIVE} .loop[data-state={state}]")
    except Error as error:
        shown = page.locator(f"{LIVE} .loops").all_inner_texts()
        raise AssertionError(f"No loop is {state}; the buttons show {shown}") from error


def test_buttons_work_for_a_cell_and_a_background_function(seen: Seen, lab: Lab) -> None:
    page = seen.page
    seen.run(lab.write("buttons.ipynb", PROGRAM, "dl.watch();", "train()",
                       "handle = dl.background(train)"))  # fmt: skip
    wait_for_loop(page, "running")
    page.click(".loop .pause")
    wait_for_loop(page, "paused")
    assert seen.busy
    # A button that moves between press and release loses the click.
    assert page.locator(LIVE).evaluate(MOVED_BY_LONGER_TEXTS) == 0
    paused_at = position(page)
    for done in (1, 2):
        page.click(".loop .step")
        page.locator(TOLD).get_by_text(f"paused, {paused_at + done} in this loop").wait_for()
    page.click(".loop .resume")
    wait_for_loop(page, "running")
    assert seen.busy
    first = page.locator(".loop").element_handle()
    page.click(".loop .stop")
    first.wait_for_element_state("hidden")
    wait_for_loop(page, "running")  # the next cell's: in the background
    seen.wait_until_idle()
    page.click(".loop .pause")
    wait_for_loop(page, "paused")
    page.click(".loop .stop")
    page.wait_for_selector(f"{LIVE} .loop", state="detached")
    assert seen.errors == []


def test_dark_colours_and_a_front_end_that_holds_clicks_back(
    seen: Seen, lab: Lab, unhurried: Path
) -> None:
    lab.send_comms_over_subshells(yes=False)
    lab.use_theme("Dark")
    page = seen.page
    seen.run(lab.write("held.ipynb", PROGRAM, "dl.watch();", "train()"))
    wait_for_loop(page, "running")
    page.click(".loop .pause")
    note = page.locator(f"{LIVE} .loops p")
    note.wait_for(state="visible")
    assert "dl.background" in note.inner_text()
    assert seen.busy
    ink = "(el) => getComputedStyle(el).color"
    assert page.locator(LIVE).first.evaluate(ink) == "rgb(232, 237, 244)"
    page.evaluate("document.body.dataset.jpThemeLight = 'true'")
    assert page.locator(LIVE).first.evaluate(ink) == "rgb(27, 35, 48)"
    scheme = "getComputedStyle(document.documentElement).colorScheme"
    assert page.evaluate(scheme) == "normal"
    unhurried.touch()
    note.wait_for(state="hidden")
    seen.wait_until_idle()
    assert seen.errors == []


def test_the_explorer_answers_and_stays_as_a_picture(seen: Seen, lab: Lab) -> None:
    page = seen.page
    cell = "import distlab as dl\ndl.widgets.explorer(examples=29, batch=29);"
    seen.run(lab.write("explorer.ipynb", cell))
    picture = page.locator(".distlab-explorer .picture")
    picture.wait_for()
    assert _shares(picture.inner_text()) == ["4"] * 7 + ["1 of 4"]
    page.fill(".distlab-explorer input[name=replicas]", "16")
    page.keyboard.press("Tab")
    picture.get_by_text("over 16 replicas").wait_for()
    assert _shares(picture.inner_text()) == ["2"] * 14 + ["1 of 2", "empty"]
    page.select_option(".distlab-explorer select[name=policy]", "OFF")
    picture.locator("td").get_by_text("1 of 2").nth(2).wait_for()
    assert _shares(picture.inner_text()) == ["2"] * 13 + ["1 of 2"] * 3
    page.fill(".distlab-explorer input[name=replicas]", "99")
    page.keyboard.press("Tab")
    picture.get_by_text("replicas must be a whole number from 1 to 16").wait_for()
    assert page.input_value(".distlab-explorer input[name=replicas]") == "16"
    seen.choose("File", "Save Notebook")
    page.wait_for_selector(".jp-mod-dirty", state="detached")
    for kernel in lab.request("api/kernels"):
        lab.request(f"api/kernels/{kernel['id']}/restart", "POST")
    page.reload()
    page.wait_for_selector(".distlab-watch img")
    assert page.locator(".distlab-explorer").count() == 0
    assert "over 16 replicas" in page.locator(".distlab-watch").inner_text()
    assert seen.errors == []
    assert seen.foreign == []


def _shares(text: str) -> list[str]:
    """What the cells of the last step say, one for each replica."""
    rows = [line.split("\t") for line in text.splitlines() if re.match(r"\d+\t", line)]
    return [row[-2].strip() for row in rows]
