"""Does with a browser what a visitor of Binder does; `make binder-check` builds and calls it.

JupyterLab opens on the first notebook, all of its cells run, and a click on the launcher's
tile shows the demo's dashboard while it trains. Then the bill: memory and CPU time.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from distlab._cli.browser import find_browser
from tests.binder.cost import OverBudgetError, check_budget, cpu_seconds
from tests.binder.served import BASE_URL, Served, WaitedTooLongError, wait_until

NOTEBOOK = "lab/tree/notebooks/01_first_steps.ipynb"
MOST_MEMORY = 900.0
"""Megabytes of JupyterLab, the notebook's kernel and the demo together, at any time."""
MOST_CPU = 60.0
"""CPU seconds of the demo, from its start until it has trained."""
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
LIMIT_SECONDS = 240.0
DRAWN = """
(canvas) => {
  if (!canvas.width || !canvas.height) return false
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
  return data.some((value, place) => place % 4 === 3 && value > 0)
}
"""
STEPS = "Number(document.querySelector('[data-text=steps]').textContent.replace(/ of .*|\\D/g, ''))"


class BrokenError(Exception):
    """A page does not show what it should, or complains."""


class Visit:
    """One visitor's browser, and what must not happen on its pages.

    Args:
      context: the browser's pages, all new.
      pictures: folder for screenshots, None for none.
    """

    def __init__(self, context: BrowserContext, pictures: Path | None) -> None:
        self.context = context
        self.wrong: list[str] = []
        self._pictures = pictures
        context.set_default_timeout(LIMIT_SECONDS * 1_000)
        context.on("page", self._listen)

    def _listen(self, page: Page) -> None:
        page.on("console", lambda m: self.wrong.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("request", lambda request: self._check(request.url))
        page.on("websocket", lambda websocket: self._check(websocket.url))

    def _check(self, url: str) -> None:
        if not url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "blob:", "data:")):
            self.wrong.append(f"asked for {url}")

    def keep(self, page: Page, name: str) -> None:
        """Takes a picture of a page, if pictures are wanted."""
        if self._pictures is not None:
            self._pictures.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=self._pictures / f"{name}.png")


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Says what was waited for when it does not happen."""
    _say(f"waiting for {what}")
    try:
        yield
    except PlaywrightTimeoutError as error:
        raise WaitedTooLongError(f"Waited {LIMIT_SECONDS:.0f} s for {what}. {error}") from None


def run_notebook(visit: Visit, served: Served) -> Page:
    """Opens the first notebook, runs all of its cells and looks at what they show."""
    page = visit.context.new_page()
    page.goto(served.url(NOTEBOOK))
    with waiting_for("JupyterLab to open on the first notebook, with a kernel"):
        page.wait_for_selector(".jp-RenderedMarkdown:visible >> text=One program, eight devices")
        page.wait_for_selector("text=/ipykernel.*Idle/")
    page.click(".lm-MenuBar-itemLabel >> text=Run")
    page.click(".lm-Menu-itemLabel >> text=/^Run All Cells$/")
    with waiting_for("all cells to run"):
        page.wait_for_selector("text=/of 360 digits it never saw are right/")
        page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    with waiting_for("three live views"):
        page.wait_for_function("document.querySelectorAll('.distlab-live .devices').length === 3")
        page.locator(".distlab-live").last.scroll_into_view_if_needed()
    check_drawn(page, ".distlab-live", 3)
    visit.keep(page, "notebook")
    errors = page.locator(".jp-OutputArea-output[data-mime-type*=error]").all_inner_texts()
    if errors:
        raise BrokenError(f"A cell of the first notebook failed: {errors}")
    return page


def open_dashboard(visit: Visit, lab: Page) -> Page:
    """Clicks on the demo's tile in a new launcher, and waits until the page shows the run."""
    lab.click(".lm-TabBar-addButton:visible")
    with waiting_for("the demo's tile in the launcher"):
        lab.wait_for_selector(".jp-LauncherCard:has-text('distlab demo')")
    visit.keep(lab, "launcher")
    with waiting_for("the dashboard after a click on its tile"), visit.context.expect_page() as new:
        lab.click(".jp-LauncherCard:has-text('distlab demo')")
    page = new.value
    with waiting_for("the dashboard to show the run"):
        page.wait_for_selector("html[data-ready=true]")
    if not page.url.split("?")[0].endswith(f"{BASE_URL}distlab/"):
        raise BrokenError(f"The dashboard belongs under {BASE_URL}distlab/, and is at {page.url}.")
    return page


def watch_training(visit: Visit, page: Page, served: Served) -> float:
    """Looks at the dashboard until the demo has trained; returns the demo's CPU seconds."""
    demo = int(served.request("distlab/health")["pid"])
    before = page.evaluate(STEPS)
    if served.request("distlab/health")["status"] == "finished":
        raise BrokenError(
            "The demo had trained before its page was shown, so nothing can be said of how it "
            "is shown live. Try again when less else runs on this machine."
        )
    with waiting_for("steps to rise"):
        page.wait_for_function(f"(before) => {STEPS} > before", arg=before)
    check_drawn(page, "section[data-page=overview]", 2)
    visit.keep(page, "dashboard-live")
    wait_until(
        "the demo to finish training",
        lambda: served.request("distlab/health")["status"] == "finished",
        LIMIT_SECONDS,
    )
    used = cpu_seconds(demo)
    with waiting_for("the dashboard to say that the run is finished"):
        page.wait_for_selector("[data-status=finished]")
    visit.keep(page, "dashboard-finished")
    return used


def check_drawn(page: Page, place: str, charts: int) -> None:
    """Raises unless charts within a place of the page have something on them before long."""
    canvases = page.locator(f"{place} canvas")
    wait_until(
        f"{charts} charts to be drawn in {place}",
        lambda: canvases.evaluate_all(f"(all) => all.filter({DRAWN}).length") >= charts,
        LIMIT_SECONDS,
    )


def say_bill(served: Served, cpu: float) -> None:
    """Prints what was used."""
    for when, parts in (("at most", served.meter.peak), ("at the end", served.meter.now)):
        _say(f"memory {when}: {sum(parts.values()):.0f} MB together")
        for pid, size in parts.items():
            _say(f"  {size:5.0f} MB  {_part(served.meter.commands[pid])}")
    _say(f"CPU time of the demo until it had trained: {cpu:.1f} s")


def check_bill(served: Served, cpu: float) -> None:
    """Raises when more was used than Binder gives."""
    memory = sum(served.meter.peak.values())
    check_budget("Memory of JupyterLab, kernel and demo together", memory, MOST_MEMORY, "MB")
    check_budget("CPU time of the demo", cpu, MOST_CPU, "s")


def _part(command: str) -> str:
    parts = {"jupyter": "JupyterLab", "ipykernel": "the notebook's kernel", "distlab demo": "demo"}
    found = [name for sign, name in parts.items() if sign in command]
    return found[-1] if found else command


def _say(text: str) -> None:
    sys.stdout.write(f"binder-check: {text}\n")
    sys.stdout.flush()


def visit(browser: Browser, served: Served, pictures: Path | None) -> None:
    """Does all that is checked."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    visitor = Visit(context, pictures)
    lab = run_notebook(visitor, served)
    dashboard = open_dashboard(visitor, lab)
    cpu = watch_training(visitor, dashboard, served)
    say_bill(served, cpu)
    context.close()
    for kernel in served.request("api/kernels"):
        served.request(f"api/kernels/{kernel['id']}", "DELETE")
    check_bill(served, cpu)
    if visitor.wrong:
        raise BrokenError(f"The pages complained: {visitor.wrong}")


def main() -> int:
    """Starts the server, visits it and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", type=Path, help="virtual environment built from binder/")
    parser.add_argument("home", type=Path, help="copy of the repository")
    args = parser.parse_args()
    browser = find_browser()
    if browser is None:
        _say("no Chromium was found: run `make browser`, or set CHROMIUM=/path/to/chromium")
        return 1
    # Whoever stops this check stops the server too, and what that has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    pictures = os.environ.get("BINDER_PICTURES")
    served = Served(args.environment, args.home)
    try:
        with served, sync_playwright() as playwright:
            started = playwright.chromium.launch(executable_path=browser, args=FLAGS)
            visit(started, served, Path(pictures) if pictures else None)
            started.close()
    except (BrokenError, OverBudgetError, WaitedTooLongError) as error:
        _say(f"the server's last lines:\n{served.log[-3_000:]}")
        _say(f"FAILED: {type(error).__name__}: {error}")
        return 1
    _say("all is well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
