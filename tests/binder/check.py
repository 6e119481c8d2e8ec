"""Does with a browser what visitors of Binder do; `make binder-check` builds and calls it.

One follows the link to the demo's page, then clicks on its tile in JupyterLab's launcher. Another
one follows the link to the first notebook, runs all of its cells, and opens the demo beside it.
Then the bill: how long they waited for the first picture, memory and CPU time.
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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser import find_browser
from tests.notebooks.lab import DRAWN, LIVE

BASE_URL = "/user/someone/"
LAB = "lab"
NOTEBOOK = "lab/tree/notebooks/01_first_steps.ipynb"
DEMO = "distlab/"
MOST_SECONDS = 15.0
"""From a click on a link to the first picture, while the server is up."""
MOST_MEMORY = 700.0
"""Megabytes of all processes after one link; pages that they share count once."""
MOST_MEMORY_BESIDE = 900.0
"""The same where a kernel and the demo run side by side; Binder guarantees 1,000."""
MOST_CPU = 60.0
"""CPU seconds of the demo, from its start until it has trained."""
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
LIMIT_SECONDS = 240.0
OVERVIEW = "section[data-page=overview]"
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
        self.ends = threading.Event()
        self.most: dict[str, float] = {}

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

    def note_memory(self) -> None:
        """Notes the most memory of all processes at the same time, until the server ends."""
        while not self.ends.wait(0.25):
            sizes: dict[str, float] = {}
            with suppress(psutil.Error):  # a process that has just ended
                for one in (self.process, *self.process.children(recursive=True)):
                    sizes[" ".join(one.cmdline())[:90]] = one.memory_full_info().pss / 1e6
            if sum(sizes.values()) > sum(self.most.values()):
                self.most = sizes

    def require_memory(self, what: str, limit: float = MOST_MEMORY) -> None:
        """Says how much memory all processes took at most, and requires a limit of it."""
        most = sum(self.most.values())
        say(f"memory of {what}: at most {most:.0f} MB: {self.most}")
        require(0 < most <= limit, f"{what} may take {limit:.0f} MB")


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
    noting = threading.Thread(target=served.note_memory)
    noting.start()
    try:
        wait_until("JupyterLab to answer", served.is_up)
        yield served
    except BaseException:
        say(f"the server's last lines:\n{log.read_text(errors='replace')[-3_000:]}")
        raise
    finally:
        served.ends.set()
        noting.join()
        family = [served.process, *served.process.children(recursive=True)]
        started.terminate()
        _, left = psutil.wait_procs(family, timeout=60)
        for one in left:
            one.kill()
        require(not left, f"the server left processes: {left}")


def visitor(browser: Browser, wrong: list[str]) -> BrowserContext:
    """Opens an empty window that notes errors, and what its pages ask of other machines."""
    own = ("http://127.0.0.1:", "ws://127.0.0.1:", "blob:", "data:")
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(LIMIT_SECONDS * 1_000)
    context.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    context.on("weberror", lambda one: wrong.append(str(one.error)))
    context.on("request", lambda one: None if one.url.startswith(own) else wrong.append(one.url))
    return context


def run_notebook(page: Page, served: Served) -> None:
    """Opens the first notebook, runs all of its cells and looks at what they show."""
    clicked = time.monotonic()
    page.goto(served.url(NOTEBOOK))
    page.wait_for_selector(".jp-RenderedMarkdown:visible >> text=One program, eight devices")
    page.wait_for_selector("text=/ipykernel.*Idle/")
    page.click(".lm-MenuBar-itemLabel >> text=Run")
    page.click(".lm-Menu-itemLabel >> text=/^Run All Cells$/")
    wait_for_charts(page, LIVE, 1)
    require_seconds("the first notebook", clicked)
    page.wait_for_selector("text=/of 360 digits it never saw are right/")
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    page.wait_for_function(f"document.querySelectorAll('{LIVE} .devices').length === 3")
    page.locator(LIVE).last.scroll_into_view_if_needed()
    wait_for_charts(page, LIVE, 3)
    errors = page.locator(".jp-OutputArea-output[data-mime-type*=error]").all_inner_texts()
    require(not errors, f"a cell of the first notebook failed: {errors}")


def watch_demo(context: BrowserContext, served: Served) -> None:
    """Opens the demo's page and watches until it has trained."""
    page, clicked = context.new_page(), time.monotonic()
    page.goto(served.url(DEMO))
    page.wait_for_selector("html[data-ready=true]")
    page.wait_for_function(f"{STEPS} > 0")
    wait_for_charts(page, OVERVIEW, 1)
    require_seconds("the demo", clicked)
    health = served.request("distlab/health")
    require(health["status"] != "finished", "the demo had trained before its page was shown")
    page.wait_for_function(f"(before) => {STEPS} > before", arg=page.evaluate(STEPS))
    wait_for_charts(page, OVERVIEW, 2)
    page.wait_for_selector("[data-status=finished]")
    times = psutil.Process(int(health["pid"])).cpu_times()
    used = times.user + times.system
    say(f"CPU time of the demo until it had trained: {used:.1f} s")
    require(used <= MOST_CPU, f"the demo may use {MOST_CPU:.0f} CPU seconds")


def click_tile(context: BrowserContext, served: Served) -> None:
    """Opens JupyterLab, and clicks on the demo's tile in its launcher."""
    lab = context.new_page()
    lab.goto(served.url(LAB))
    with context.expect_page() as new:
        lab.click(".jp-LauncherCard:has-text('distlab demo')")
    new.value.wait_for_selector("html[data-ready=true]")
    require(f"{BASE_URL}{DEMO}" in new.value.url, f"the dashboard is at {new.value.url}")


def require_seconds(what: str, clicked: float) -> None:
    """Says how long the first picture took, and whether that is short enough."""
    seconds = time.monotonic() - clicked
    say(f"from the click to the first picture of {what}: {seconds:.1f} s")
    require(seconds <= MOST_SECONDS, f"{what} has {MOST_SECONDS:.0f} s to its first picture")


def wait_for_charts(page: Page, place: str, charts: int) -> None:
    """Waits until charts within a place of the page have something on them."""
    drawn = f"(all) => all.filter({DRAWN}).length"
    canvases = page.locator(f"{place} canvas")
    wait_until(f"charts in {place}", lambda: canvases.evaluate_all(drawn) >= charts)


def main() -> None:
    """Starts the server and visits it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", type=Path, help="virtual environment built from binder/")
    parser.add_argument("home", type=Path, help="copy of the repository")
    args, browser = parser.parse_args(), find_browser()
    require(browser, "no Chromium: run `make browser`, or set CHROMIUM=/path/to/chromium")
    # Whoever stops this check stops the server too, and what that has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    wrong: list[str] = []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser, args=FLAGS)
        with serving(args.environment, args.home) as served, visitor(started, wrong) as context:
            watch_demo(context, served)
            served.require_memory("JupyterLab and the demo")
            click_tile(context, served)
        with serving(args.environment, args.home) as served, visitor(started, wrong) as context:
            run_notebook(context.new_page(), served)
            served.require_memory("JupyterLab and a kernel")
            watch_demo(context, served)
            served.require_memory("all three", MOST_MEMORY_BESIDE)
    require(not wrong, f"the pages complained: {wrong}")
    say("all is well")


if __name__ == "__main__":
    main()
