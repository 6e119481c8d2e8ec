"""Does with a browser what a visitor of Binder does; `make binder-check` builds and calls it.

JupyterLab opens on the first notebook, all of its cells run, and a click on the launcher's
tile shows the demo's dashboard while it trains. Then the bill: memory and CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import BrowserContext, Page, sync_playwright

from tests.browser import find_browser

BASE_URL = "/user/someone/"
NOTEBOOK = "lab/tree/notebooks/01_first_steps.ipynb"
MOST_MEMORY = 900.0
"""Megabytes of JupyterLab, the notebook's kernel and the demo together."""
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


def say(text: str) -> None:
    sys.stdout.write(f"binder-check: {text}\n")
    sys.stdout.flush()


def require(holds: object, what: str) -> None:
    """Ends the check unless something is as it should be."""
    if not holds:
        raise SystemExit(f"binder-check: FAILED: {what}")


def wait_until(what: str, done: Callable[[], bool]) -> None:
    """Waits for a condition."""
    say(f"waiting for {what}")
    pause, end = threading.Event(), time.monotonic() + LIMIT_SECONDS
    while not done():
        require(time.monotonic() < end, f"waited {LIMIT_SECONDS:.0f} s for {what}")
        pause.wait(0.2)


class Served:
    """JupyterLab as Binder starts it: by `binder/start`, with a token, under a prefix."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, token: str) -> None:
        self.process = psutil.Process(process.pid)
        self._port = port
        self._token = token
        self.peak = 0.0

    def url(self, path: str) -> str:
        """The address of a page, with the token."""
        return f"http://127.0.0.1:{self._port}{BASE_URL}{path}?token={self._token}"

    def request(self, path: str) -> Any:
        """Returns the answer of an address, read as JSON."""
        with urllib.request.urlopen(self.url(path), timeout=60) as answer:
            return json.load(answer)

    def is_up(self) -> bool:
        require(self.process.is_running(), "the server ended before it answered")
        try:
            self.request("api/status")
        except OSError:
            return False
        return True

    def look_at_memory(self) -> None:
        """Notes the memory of all processes, pages that they share counted once."""
        sizes = {}
        for one in (self.process, *self.process.children(recursive=True)):
            sizes[" ".join(one.cmdline())[:90]] = one.memory_full_info().pss / 1e6
        say(f"memory: {sum(sizes.values()):.0f} MB: {sizes}")
        self.peak = max(self.peak, sum(sizes.values()))


@contextmanager
def serving(environment: Path, home: Path) -> Iterator[Served]:
    """Serves a copy of the repository, and leaves no process behind."""
    token, log = secrets.token_hex(16), home.parent / "server.log"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    start = [
        str(home / "binder" / "start"), "jupyter", "lab", "--no-browser", "--allow-root",
        "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0",
        f"--ServerApp.base_url={BASE_URL}", f"--IdentityProvider.token={token}",
        "--ServerApp.trust_xheaders=True", "--ServerApp.allow_origin=*",
    ]  # fmt: skip
    variables = {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    with log.open("wb") as output:
        started = subprocess.Popen(start, env=variables, cwd=home, stdout=output, stderr=output)
    served = Served(started, port, token)
    try:
        wait_until("JupyterLab to answer", served.is_up)
        yield served
    except BaseException:
        say(f"the server's last lines:\n{log.read_text(errors='replace')[-3_000:]}")
        raise
    finally:
        family = [served.process, *served.process.children(recursive=True)]
        started.terminate()
        _, left = psutil.wait_procs(family, timeout=60)
        for one in left:
            one.kill()
        require(not left, f"the server left processes: {left}")


def listen(page: Page, wrong: list[str]) -> None:
    """Notes a page's errors, and what it asks of other machines."""
    own = ("http://127.0.0.1:", "ws://127.0.0.1:", "blob:", "data:")
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda one: None if one.url.startswith(own) else wrong.append(one.url))


def run_notebook(page: Page, served: Served) -> None:
    """Opens the first notebook, runs all of its cells and looks at what they show."""
    page.goto(served.url(NOTEBOOK))
    page.wait_for_selector(".jp-RenderedMarkdown:visible >> text=One program, eight devices")
    page.wait_for_selector("text=/ipykernel.*Idle/")
    page.click(".lm-MenuBar-itemLabel >> text=Run")
    page.click(".lm-Menu-itemLabel >> text=/^Run All Cells$/")
    page.wait_for_selector("text=/of 360 digits it never saw are right/")
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    page.wait_for_function("document.querySelectorAll('.distlab-live .devices').length === 3")
    page.locator(".distlab-live").last.scroll_into_view_if_needed()
    check_drawn(page, ".distlab-live", 3)
    errors = page.locator(".jp-OutputArea-output[data-mime-type*=error]").all_inner_texts()
    require(not errors, f"a cell of the first notebook failed: {errors}")


def watch_demo(context: BrowserContext, lab: Page, served: Served) -> None:
    """Clicks on the demo's tile in a new launcher, and watches until it has trained."""
    lab.click(".lm-TabBar-addButton:visible")
    with context.expect_page() as new:
        lab.click(".jp-LauncherCard:has-text('distlab demo')")
    page = new.value
    page.wait_for_selector("html[data-ready=true]")
    require(f"{BASE_URL}distlab/" in page.url, f"the dashboard is at {page.url}")
    health = served.request("distlab/health")
    require(health["status"] != "finished", "the demo had trained before its page was shown")
    page.wait_for_function(f"(before) => {STEPS} > before", arg=page.evaluate(STEPS))
    check_drawn(page, "section[data-page=overview]", 2)
    served.look_at_memory()
    what = "the demo to finish training"
    wait_until(what, lambda: served.request("distlab/health")["status"] == "finished")
    times = psutil.Process(int(health["pid"])).cpu_times()
    page.wait_for_selector("[data-status=finished]")
    served.look_at_memory()
    used = times.user + times.system
    say(f"CPU time of the demo until it had trained: {used:.1f} s")
    require(used <= MOST_CPU, f"the demo may use {MOST_CPU:.0f} CPU seconds")


def check_drawn(page: Page, place: str, charts: int) -> None:
    """Waits until charts within a place of the page have something on them."""
    drawn = f"(all) => all.filter({DRAWN}).length"
    canvases = page.locator(f"{place} canvas")
    wait_until(f"charts in {place}", lambda: canvases.evaluate_all(drawn) >= charts)


def main() -> None:
    """Starts the server and visits it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", type=Path, help="virtual environment built from binder/")
    parser.add_argument("home", type=Path, help="copy of the repository")
    args = parser.parse_args()
    browser = find_browser()
    require(browser, "no Chromium: run `make browser`, or set CHROMIUM=/path/to/chromium")
    # Whoever stops this check stops the server too, and what that has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    wrong: list[str] = []
    with serving(args.environment, args.home) as served, sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser, args=FLAGS)
        context = started.new_context(viewport={"width": 1280, "height": 800})
        context.set_default_timeout(LIMIT_SECONDS * 1_000)
        context.on("page", lambda page: listen(page, wrong))
        lab = context.new_page()
        run_notebook(lab, served)
        watch_demo(context, lab, served)
        started.close()
        require(served.peak <= MOST_MEMORY, f"all may use {MOST_MEMORY:.0f} MB together")
    require(not wrong, f"the pages complained: {wrong}")
    say("all is well")


if __name__ == "__main__":
    main()
