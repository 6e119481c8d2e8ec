"""How quickly a served page shows what happens, and what viewers cost: for docs/performance.md.

    python -m tests.bench.dashboard [--seconds 20] [--viewers 50]

A process of its own serves a made-up live run. One real browser watches it; further
viewers are Bokeh clients without a browser, which get all that a page gets.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright
from tornado.httpclient import AsyncHTTPClient
from tornado.websocket import WebSocketClientConnection, websocket_connect

from distlab.events import Event, Metric, Step
from distlab.recording.ring import Ring
from tests.bench.recording import write_large
from tests.browser import find_browser
from tests.synthetic import beginning, steps

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
TICK_SECONDS = 0.01
LIMIT_SECONDS = 120.0
LONG_LIMIT_SECONDS = 600.0
STEPS_BEFORE = 25_000
"""Steps of a live run before it is looked at; its ring is full by then."""

_AGES = """
(milliseconds) => new Promise((done) => {
  const models = Bokeh.documents[0].roots().find((model) => model.name === "loss").references()
  const source = Array.from(models).find((model) => model.name === "metrics")
  const ages = []
  const values = () => Array.from(source.get_column("value")[0] ?? [])
  let newest = Math.max(0, ...values())
  const changed = () => {
    const fresh = values().filter((at) => at > newest)
    newest = Math.max(newest, ...fresh)
    // What was changed in this task is on the screen when the frame after the next begins.
    requestAnimationFrame(() => requestAnimationFrame(() => {
      const now = Date.now() / 1000
      for (const at of fresh) ages.push(now - at)
    }))
  }
  source.properties.data.change.connect(changed)
  setTimeout(() => done(ages), milliseconds)
})
"""


class LiveRing(Ring):
    """A recorder's ring, of a run that goes on."""

    live = True


class Emitter(threading.Thread):
    """Adds events to a live run: each tick a step, its loss (the wall clock), and fillers."""

    def __init__(self, ring: Ring, rate: int, replicas: int) -> None:
        super().__init__(daemon=True)
        self.ring, self.rate, self.replicas = ring, rate, replicas
        self.emitted = 0
        self.cpu_seconds = 0.0

    def run(self) -> None:
        number = STEPS_BEFORE
        began = time.monotonic()
        while True:
            events: list[Event] = list(steps(1, replicas=self.replicas, first=number))
            now = time.monotonic_ns()
            events = [event for event in events if not isinstance(event, Metric)]
            wanted = int((time.monotonic() - began) * self.rate) - self.emitted
            events += [
                Step(time_ns=now, step=number, program=0, strategy=0, dispatched_ns=now, examples=8)
                for _ in range(wanted - len(events) - 1)
            ]
            events.append(Metric(time_ns=now, step=number, values={"loss": time.time()}))
            for event in events:
                self.ring.append(event)
            self.emitted += len(events)
            number += 1
            self.cpu_seconds = time.thread_time()
            time.sleep(TICK_SECONDS)


def serve_forever(rate: int, replicas: int) -> None:
    """Serves a live run and answers each line on standard input with its costs."""
    from distlab_dashboard import serve

    ring = LiveRing()
    for event in (*beginning(replicas), *steps(STEPS_BEFORE, replicas=replicas)):
        ring.append(event)
    server = serve(ring)
    emitter = Emitter(ring, rate, replicas)
    emitter.start()
    print(server.url, flush=True)
    for _ in sys.stdin:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        print(
            json.dumps(
                {
                    "cpu": time.process_time() - emitter.cpu_seconds,
                    "time": time.monotonic(),
                    "memory": pages * os.sysconf("SC_PAGE_SIZE"),
                    "events": emitter.emitted,
                }
            ),
            flush=True,
        )


def show_forever(folder: str) -> None:
    """Serves a recorded run and answers as `serve_forever` does."""
    from distlab_dashboard import serve

    print(serve(folder).url, flush=True)
    for _ in sys.stdin:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        print(json.dumps({"memory": pages * os.sysconf("SC_PAGE_SIZE")}), flush=True)


def view_forever(url: str, count: int) -> None:
    """Opens viewers without a browser, and says when all have the page's charts."""
    asyncio.run(_view(url, count))


async def _view(url: str, count: int) -> None:
    viewers = [await _viewer(url) for _ in range(count)]
    print("there", flush=True)
    await asyncio.gather(*map(_read, viewers))


async def _viewer(url: str) -> WebSocketClientConnection:
    """Opens the page as a browser does: its HTML, its websocket, its document."""
    page = await AsyncHTTPClient().fetch(url)
    found = re.search(r'"token":"([^"]+)"', page.body.decode())
    assert found is not None
    socket = await websocket_connect(f"ws{url.removeprefix('http').rstrip('/')}/ws",
        subprotocols=["bokeh", found[1]], max_message_size=1 << 30)  # fmt: skip
    for _ in range(3):  # the server's greeting comes first
        await socket.read_message()
    for part in ({"msgid": "1", "msgtype": "PULL-DOC-REQ"}, {}, {}):
        await socket.write_message(json.dumps(part))
    while (message := await socket.read_message()) is not None:
        if isinstance(message, str) and '"PULL-DOC-REPLY"' in message:
            return socket
    raise ConnectionError(f"{url} closed the connection")


async def _read(socket: WebSocketClientConnection) -> None:
    while await socket.read_message() is not None:
        pass


class Served:
    """The process that serves."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.url = self._line()

    def costs(self) -> dict[str, float]:
        assert self.process.stdin is not None
        self.process.stdin.write("costs\n")
        self.process.stdin.flush()
        found: dict[str, float] = json.loads(self._line())
        return found

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Runs this module in another process, until the block is left."""
    command = [sys.executable, "-m", "tests.bench.dashboard", *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(LIMIT_SECONDS)


def watched(page: Page, served: Served, seconds: float) -> dict[str, float]:
    """Watches a page for some seconds, and returns its ages and what the server used."""
    before = served.costs()
    ages = np.array(page.evaluate(_AGES, 1000 * seconds))
    after = served.costs()
    length = after["time"] - before["time"]
    return {
        "events/s": (after["events"] - before["events"]) / length,
        "p50 ms": 1e3 * float(np.percentile(ages, 50)),
        "p95 ms": 1e3 * float(np.percentile(ages, 95)),
        "core": (after["cpu"] - before["cpu"]) / length,
        "MB": after["memory"] / 1e6,
    }


def measure_long(playwright: Any, events: int) -> None:
    """Opens a long run from its folder."""
    browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
    with tempfile.TemporaryDirectory() as folder:
        write_large(Path(folder) / "run", events)
        with running("--show", str(Path(folder) / "run")) as process:
            served = Served(process)
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            began = time.monotonic()
            page.goto(served.url)
            page.wait_for_selector("html[data-ready=true]", timeout=1e3 * LIMIT_SECONDS)
            ready = time.monotonic() - began
            first = page.evaluate(
                "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            )
            page.wait_for_selector(".mark[data-status=killed]", timeout=1e3 * LONG_LIMIT_SECONDS)
            whole = time.monotonic() - began
            memory = served.costs()["memory"] / 1e6
            name = f"a recorded run of {events:,} steps"
            times = {"first picture s": first / 1e3, "page s": ready, "all read s": whole}
            say(name, {**times, "MB": memory})
    browser.close()


def say(what: str, numbers: dict[str, float]) -> None:
    print(f"{what:<44}", "  ".join(f"{name} {value:,.2f}" for name, value in numbers.items()))


def measure(playwright: Any, seconds: float, viewers: int, replicas: int, rate: int) -> None:
    browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
    with running("--serve", "--rate", str(rate), "--replicas", str(replicas)) as process:
        served = Served(process)
        time.sleep(2)
        idle = served.costs()
        time.sleep(seconds / 4)
        later = served.costs()
        core = (later["cpu"] - idle["cpu"]) / (later["time"] - idle["time"])
        name = f"{replicas} devices, {rate:,} events/s"
        say(f"{name}, nobody looks", {"core": core, "MB": later["memory"] / 1e6})
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(served.url)
        page.wait_for_selector("html[data-ready=true]", timeout=1e3 * LIMIT_SECONDS)
        page.wait_for_timeout(2_000)
        say(f"{name}, one viewer", watched(page, served, seconds))
        if viewers:
            with watching(served.url, viewers):
                say(f"{name}, {viewers + 1} viewers", watched(page, served, seconds))
    browser.close()


@contextlib.contextmanager
def watching(url: str, viewers: int) -> Iterator[None]:
    """Has viewers look at a page, until the block is left."""
    with running("--view", url, "--viewers", str(viewers)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--rate", type=int, default=300)
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--events", type=int, default=10_000_000, help="of a long run")
    parser.add_argument("--show", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--view", metavar="URL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve_forever(args.rate, args.replicas)
    elif args.show:
        show_forever(args.show)
    elif args.view:
        view_forever(args.view, args.viewers)
    else:
        with sync_playwright() as playwright:
            measure(playwright, args.seconds, args.viewers, 8, args.rate)
            measure(playwright, args.seconds, 0, 8, 10_000)
            for replicas in (64, 512, 1_024):
                measure(playwright, args.seconds, 0, replicas, args.rate)
            for events in (30_000, args.events):
                measure_long(playwright, events)


if __name__ == "__main__":
    main()
