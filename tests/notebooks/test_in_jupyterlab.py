"""The first notebook in a real JupyterLab and a real browser."""

from __future__ import annotations

import json
import re
from typing import Any

import nbformat
from playwright.sync_api import Page

import distlab as dl
from distlab.events import Sharding
from tests.notebooks.lab import DRAWN, LIVE, Lab, Seen
from tests.notebooks.test_first_steps import NOTEBOOK
from tests.patience import wait_until

HOLD = """
import time
from pathlib import Path


def epochs():
    for epoch in range(5_000):
        yield epoch
        time.sleep(0.2)
        if Path("seen").exists():
            return
"""
REPLICAS = """
() => {
  const sources = Bokeh.documents.flatMap((made) => Array.from(made._all_models.values()))
  const { data } = sources.find((model) => model.name === "replicas")
  const column = (name) => Array.from(data.get?.(name) ?? data[name])
  return column("name").map((name, row) => [name, column("size")[row]])
}
"""


def held_notebook(lab: Lab) -> str:
    """The notebook without its outputs, and training goes on until the test has seen enough."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    train = next(cell for cell in notebook.cells if cell.id == "train")
    assert "range(EPOCHS)" in train.source
    train.source = HOLD + train.source.replace("range(EPOCHS)", "epochs()")
    nbformat.write(notebook, lab.folder / "first.ipynb")
    return "first.ipynb"


def test_the_widget_is_live_and_leaves_a_picture(seen: Seen, lab: Lab) -> None:
    lab.use_theme("Light")
    seen.open(held_notebook(lab))
    seen.choose("Run", "Run All Cells")
    seen.page.wait_for_selector(f"{LIVE} .devices canvas", state="attached")
    first = seen.facts()
    seen.page.wait_for_function(
        f"(before) => document.querySelector('{LIVE} header .quiet').textContent !== before",
        arg=first["steps"],
    )
    during = seen.facts()
    replicas = seen.page.evaluate(REPLICAS)
    assert during["busy"] == "busy"
    assert [name for name, _ in replicas] == [f"CPU:{number}" for number in range(8)]
    for chart in ("batches", "devices", "reductions"):
        assert seen.page.locator(f"{LIVE} .{chart} canvas").first.evaluate(DRAWN), chart
    (lab.folder / "seen").touch()
    seen.page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    _check_sizes(lab, during)
    _check_sizes(lab, seen.facts())
    _check_fits(seen.page)
    seen.page.wait_for_function(f"document.querySelectorAll('{LIVE} .devices').length === 3")
    assert seen.page.locator(f"{LIVE} >> visible=true").count() > 0
    _check_saved(seen, lab)
    _check_reload(seen, lab)
    assert seen.errors == []
    assert seen.foreign == []


def _check_sizes(lab: Lab, shown: dict[str, Any]) -> None:
    """What the page said is what the run recorded."""
    found = re.match(r"Batch ([\d\u202f]+) ", shown["batch"])
    assert found is not None
    number = int(found[1].replace("\u202f", ""))
    run = dl.Run.open(lab.folder / "runs" / "first")
    sizes = [event.sizes for event in run.events("sharding") if isinstance(event, Sharding)]
    assert [int(size.split()[0]) for size in shown["sizes"]] == sizes[number]


def _check_fits(page: Page) -> None:
    """It is never wider than the notebook gives it, here about 600 px."""
    width, needed = page.locator(LIVE).first.evaluate("(el) => [el.clientWidth, el.scrollWidth]")
    assert 500 < width < 660
    assert needed <= width


def _check_saved(seen: Seen, lab: Lab) -> None:
    """The saved notebook has pictures and no trace of a widget."""
    seen.choose("File", "Save Notebook")
    wait_until(lambda: len(_displayed(lab)) == 3)
    shown = _displayed(lab)
    assert [set(data) for data in shown] == [{"text/html", "text/plain"}] * 3
    assert all("finished" in "".join(data["text/plain"]) for data in shown)
    assert "widgets" not in json.loads((lab.folder / "first.ipynb").read_text())["metadata"]


def _displayed(lab: Lab) -> list[dict[str, Any]]:
    try:
        saved = json.loads((lab.folder / "first.ipynb").read_text())
    except ValueError:  # it is just being written
        return []
    outputs = [output for cell in saved["cells"] for output in cell.get("outputs", [])]
    return [output["data"] for output in outputs if output["output_type"] == "display_data"]


def _check_reload(seen: Seen, lab: Lab) -> None:
    """With the kernel it is live again; without one the pictures are there."""
    seen.open("first.ipynb")
    seen.page.wait_for_selector(f"{LIVE} .batches canvas", state="attached")
    for kernel in lab.request("api/kernels"):
        lab.request(f"api/kernels/{kernel['id']}/restart", "POST")
    seen.page.reload()
    seen.page.wait_for_selector(".distlab-watch img")
    assert seen.page.locator(LIVE).count() == 0
    assert seen.page.locator(".distlab-watch img").first.is_visible()
