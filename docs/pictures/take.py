"""Takes the pictures in this folder: `make screenshots`.

Runs the real demo and looks at its page with a real browser while it trains.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.browser import find_browser  # noqa: E402

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
LIMIT_SECONDS = 300.0
STOP_SECONDS = 30.0
PROGRESS = 60
"""Percent of the demo's steps that are done when the first picture is taken."""
PARTIAL_BATCH = 22
"""The last one of an epoch: 29 of the 1,437 training images are left for it."""
ANNOUNCEMENT = "Dashboard: "


@contextmanager
def demo(folder: Path) -> Iterator[str]:
    """Runs the demo and gives the address of its page; afterwards stops it.

    Args:
      folder: where it records.
    """
    command = [sys.executable, "-m", "distlab", "demo", "--record", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        limit = threading.Timer(LIMIT_SECONDS, process.kill)
        limit.start()
        try:
            assert process.stdout is not None
            said = (line for line in process.stdout if line.startswith(ANNOUNCEMENT))
            announced = next(said, None)
            if announced is None:
                sys.exit("The demo ended before it served its page: run `make demo` to see why.")
            yield announced.removeprefix(ANNOUNCEMENT).strip()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(STOP_SECONDS)
            limit.cancel()


def opened(browser: Browser, url: str, page: str, scheme: Literal["light", "dark"]) -> Page:
    """Opens one of the dashboard's pages and waits until it shows the run.

    Args:
      browser: the browser.
      url: address of the dashboard.
      page: name of the page, as its address has it.
      scheme: colours that the system is set to.
    """
    view = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    view.set_default_timeout(LIMIT_SECONDS * 1_000)
    view.goto(f"{url}#{page}")
    view.wait_for_selector(f"html[data-ready=true][data-shown={page}]")
    view.wait_for_function(
        "percent => Number(document.querySelector('.bar').ariaValueNow) >= percent", arg=PROGRESS
    )
    return view


def choose_batch(view: Page, number: int) -> None:
    """Chooses a batch on the page of batches and waits until it is drawn."""
    field = view.locator(".number input")
    field.fill(str(number))
    field.press("Enter")
    view.wait_for_function(
        "text => document.querySelector('[data-text=batch_number]').textContent === text",
        arg=str(number),
    )
    field.blur()


def keep(view: Page, name: str) -> None:
    """Writes a picture once two frames were painted, and closes the page."""
    view.evaluate("() => new Promise((f) => requestAnimationFrame(() => requestAnimationFrame(f)))")
    view.screenshot(path=HERE / name)
    view.close()
    sys.stdout.write(f"{HERE / name}\n")


def main() -> None:
    """Takes all pictures."""
    executable = find_browser()
    if executable is None:
        sys.exit("No Chromium was found: run `make browser`, or set CHROMIUM=/path/to/chromium.")
    with (
        tempfile.TemporaryDirectory() as folder,
        demo(Path(folder) / "digits") as url,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        keep(opened(browser, url, "overview", "light"), "dashboard.png")
        keep(opened(browser, url, "devices", "dark"), "dashboard-dark.png")
        partial = opened(browser, url, "batches", "light")
        choose_batch(partial, PARTIAL_BATCH)
        keep(partial, "partial-batch.png")
        keep(opened(browser, url, "steps", "light"), "steps.png")
        keep(opened(browser, url, "reductions", "dark"), "reductions.png")
        browser.close()


if __name__ == "__main__":
    main()
