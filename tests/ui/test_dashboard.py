"""The served page in a real browser, live and afterwards."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import socket
import threading
import urllib.request
import weakref
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from distlab.errors import InvalidArgumentError, NotARunError, PortInUseError
from distlab.events import RunEnd, Sharding
from distlab_dashboard import DashboardServer, serve
from distlab_dashboard import server as server_module
from distlab_dashboard.session import Session
from tests.patience import LIMIT_SECONDS, wait_until
from tests.synthetic import (
    ListSource,
    beginning,
    compiled,
    ending,
    sizes_of,
    steps,
    there,
    whole_run,
)
from tests.ui.conftest import Pages, Served, Watched, ended

PAGES = (
    *("overview", "batches", "devices", "steps", "reductions", "placement", "compile"),
    "events",
)


def health(server: DashboardServer) -> dict[str, Any]:
    with urllib.request.urlopen(f"{server.url}health", timeout=LIMIT_SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_a_finished_run_shows_everything(served: Served, new_page: Pages) -> None:
    server = served(ended(whole_run(60)), prefix="some/where")
    assert server.url.endswith("/some/where/")
    page = new_page().open(server.url)
    page.wait_for_text("status_text", "finished")
    page.wait_for_text("steps", "60 of 60")
    assert page.text("run") == "made-up"
    assert page.text("devices") == "8 simulated devices"
    chips = page.page.locator('[data-list="device_names"] li')
    assert chips.all_inner_texts() == [f"CPU:{replica}" for replica in range(8)]
    loss = page.data("loss", "metrics")["value"][0]
    assert len(loss) == 60
    assert loss[-1] < loss[0]
    assert page.text("lost") == "nothing lost"
    check_batches(page)
    check_reductions(page)
    check_themes(page)
    assert page.page.locator(".tabs a[data-page=workers]").is_hidden()
    for width in (320, 640):  # 640: a window of 1280 pixels at 200 %
        page.page.set_viewport_size({"width": width, "height": 800})
        for tab in PAGES:
            page.tab(tab)
            page.page.wait_for_function("() => Bokeh.documents[0].is_idle")
            assert page.page.evaluate("document.documentElement.scrollWidth") <= width, (width, tab)


def check_batches(page: Watched) -> None:
    """Moves through the batches: partial ones, one that is not there, and their rows."""
    page.tab("batches")
    page.wait_for_text("batch_number", "59")
    page.page.click("button.uneven")
    page.wait_for_text("batch_number", "22")
    rows = page.page.locator(".sizes li")
    sizes = [int(size) for size in rows.evaluate_all("rows => rows.map(row => row.dataset.size)")]
    assert sizes == sizes_of(1_437 % 64, 64, 8)
    assert rows.locator("b").all_inner_texts() == ["8", "8", "8", "5 of 8", *(["empty"] * 4)]
    page.page.wait_for_function(
        "() => Array.from(Bokeh.documents[0].roots().find((root) => root.name === 'batches')"
        ".references())"
        ".find((m) => m.name === 'examples').get_column('left').length === 29"
    )
    assert page.data("batches", "replicas")["text"] == ["8"] * 3 + ["5 of 8"] + ["0 of 8"] * 4
    page.tab("placement")
    pieces = page.page.locator(".pieces tbody tr")
    texts = [row.locator("th, td").all_inner_texts() for row in pieces.all()]
    places = ["0 to 7", "8 to 15", "16 to 23", "24 to 28", *(["none"] * 4)]
    assert texts == [[f"CPU:{n}", places[n], str(size)] for n, size in enumerate(sizes)]
    page.tab("batches")
    page.page.click("button.uneven")
    page.wait_for_text("batch_number", "45")
    page.page.click('button[data-move="1"]')
    page.wait_for_text("batch_number", "46")
    page.page.check(".follow input")
    page.wait_for_text("batch_number", "59")
    page.page.goto(f"{page.page.url.partition('#')[0]}#batches?batch=500")
    page.page.reload()
    page.wait_for_text(
        "batch_missing", "Batch 500 is not there: 60 batches so far, from 0. Batch 59 is shown."
    )
    page.page.fill(".number input", "0")
    page.page.keyboard.press("Enter")
    page.wait_for_text("batch_number", "0")
    assert not page.page.locator("[data-text=batch_missing]").is_visible()
    sharding = next(event for event in whole_run(60) if isinstance(event, Sharding))
    first = int(there(sharding.positions)[0])
    box = page.page.locator('section[data-page="batches"] .bk-Figure canvas').first.bounding_box()
    assert box is not None

    def is_said() -> bool:
        for x in range(80, 200, 8):  # across the first example of the first replica
            page.page.mouse.move(box["x"] + x, box["y"] + 0.2 * box["height"])
            if page.page.evaluate(_TOOLTIP_SAYS, [str(first), str(first % 10)]):
                return True
        return False

    wait_until(is_said, "the chart of the batch, and its tooltip")


_TOOLTIP_SAYS = """
([index, label]) => [...document.querySelectorAll(".bk-Tooltip")].some((element) => {
  const text = element.shadowRoot.textContent.replaceAll(/\\s+/g, " ")
  return text.includes(`label: ${label} index in the source: ${index} on: CPU:0`)
})
"""


def check_reductions(page: Watched) -> None:
    """Compares the table of reductions with the run, and how it is laid out."""
    page.tab("reductions")
    page.page.wait_for_selector(".reductions tbody tr")
    assert page.table() == {
        "kind": ["all-reduce", "reduce MEAN"],
        "what": ["\u2013", "\u2013"],
        "where": ["inside train_step", "from Python"],
        "bytes each": ["9.64 kB", "4 B"],
        "type": ["float32", "float32"],
        "times": ["60", "60"],
        "total bytes": ["578 kB", "240 B"],
        "replicas": ["8", "8"],
        "mean time": ["not timed", "50 \u00b5s"],
        "how": ["train.py:31", "to one device"],
    }
    assert page.page.locator(".reductions tbody th[scope=row]").count() == 2
    times = page.page.locator(".reductions tbody tr td:nth-child(6)").first
    assert times.evaluate("cell => getComputedStyle(cell).textAlign") == "right"
    assert times.evaluate("cell => getComputedStyle(cell).userSelect") != "none"


def check_themes(page: Watched) -> None:
    """Switches between light and dark: by the system, by the button, and after a reload."""
    colour = "() => getComputedStyle(document.body).backgroundColor"
    light, dark = "rgb(243, 245, 248)", "rgb(13, 17, 23)"
    assert page.page.evaluate(colour) == light
    page.page.emulate_media(color_scheme="dark")
    assert page.page.evaluate(colour) == dark
    page.page.emulate_media(color_scheme="light")
    page.page.click("button.theme")
    assert page.page.evaluate(colour) == dark
    page.page.reload()
    page.page.wait_for_selector("html[data-ready=true]")
    assert page.page.evaluate(colour) == dark
    page.page.click("button.theme")


def test_pages_of_an_empty_run_are_filled_while_it_goes_on(served: Served, new_page: Pages) -> None:
    source = ListSource([])
    page = new_page(width=800).open(served(source).url)
    page.wait_for_text("loss_note", "nothing logged")
    for tab in PAGES[1:]:
        page.tab(tab)
    assert not page.page.locator("table.reductions").is_visible()
    assert page.warnings == []
    page.tab("reductions")
    source.events.extend([*beginning(total_steps=20), *steps(10)])
    page.wait_for_times("10")
    page.page.locator(".reductions tbody tr:first-child td").last.select_text()
    source.events.extend(steps(5, first=10))
    page.wait_for_times("15")
    assert page.page.evaluate("() => String(getSelection())") == "train.py:31"
    page.tab("compile")
    page.wait_for_text("compiling", "1 program, compiled in 110 ms together")
    cells = page.page.locator(".programs tbody tr").first
    assert cells.locator("th").inner_text() == "train_step"
    assert cells.locator("td").all_inner_texts()[0] == "new function"
    assert cells.locator("th").get_attribute("title") == "x: float32[8,64]; y: int32[8]"
    changed = structs.replace(
        compiled(8), program=1, cause="new shapes", changed="<b>x</b>: float32[8] -> float32[5]"
    )
    source.events.append(changed)
    page.wait_for_text("compiling", "2 programs, compiled in 220 ms together")
    why = page.page.locator(".programs tbody tr").first.locator("td").first
    assert why.inner_text() == "new shapes: <b>x</b>: float32[8] \u2192 float32[5]"
    source.events.append(RunEnd(time_ns=10**13, status="failed", message="ValueError: no"))
    page.wait_for_text("status_text", "failed")
    assert page.text("trouble") == "ValueError: no"


def test_a_live_run_moves_at_least_four_times_a_second(served: Served, new_page: Pages) -> None:
    source = ListSource(list(beginning(total_steps=10_000)))
    stop = threading.Event()

    def train() -> None:
        number = 0
        while not stop.wait(0.005):
            source.events.extend(steps(1, first=number))
            number += 1

    thread = threading.Thread(target=train)
    thread.start()
    try:
        page = new_page().open(served(source).url)
        page.wait_for_text("status_text", "live")
        page.page.wait_for_function("() => Number(document.querySelector('.figure').textContent)")
        changes = page.page.evaluate(
            """() => new Promise((done) => {
              const models = Bokeh.documents[0].roots().find((r) => r.name === "loss").references()
              const source = Array.from(models).find((m) => m.name === "metrics")
              const times = []
              source.properties.data.change.connect(() => {
                times.push(performance.now())
                if (times.length > 4 && times.at(-1) - times.at(-5) <= 1000) done(4)
              })
              setTimeout(() => done(times.length / 60), 60000)
            })"""
        )
        assert changes == 4, "in no second of a minute; a busy machine has slow ones"
        stop.set()
        thread.join()
        source.events.append(ending(10_000))
        source.live = False
        page.wait_for_text("status_text", "finished")
    finally:
        stop.set()
        thread.join()


def test_a_long_run_shows_how_far_it_is_read(served: Served, new_page: Pages) -> None:
    going_on = threading.Event()

    class Long(ListSource):
        seconds = 0.0

        def since(self, cursor: int, limit: int = 10_000) -> Any:
            assert not cursor or going_on.wait(60)
            return super().since(cursor, limit)

    source = Long([*beginning(total_steps=4_000), *steps(4_000)])
    source.live = False
    begin_ns, half_ns, end_ns = (source.events[place].time_ns for place in (0, 4_999, -1))
    source.seconds = (end_ns - begin_ns) / 1e9
    try:
        page = new_page().open(served(source).url)
        share = (half_ns - begin_ns) / (end_ns - begin_ns)
        assert 0.1 < share < 0.9
        page.wait_for_text("status_text", f"reading {int(100 * share)} %")
    finally:
        going_on.set()
    page.wait_for_text("status_text", "ended without closing")


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Session]]:
    """All sessions made in this test, which are not kept alive by it."""
    made: list[weakref.ref[Session]] = []
    make = Session.__init__

    def noted(session: Session, *given: Any, **options: Any) -> None:
        make(session, *given, **options)
        made.append(weakref.ref(session))

    monkeypatch.setattr(Session, "__init__", noted)
    return made


def are_gone(sessions: list[weakref.ref[Session]]) -> bool:
    gc.collect()
    return all(session() is None for session in sessions)


def test_two_pages_share_one_feed_and_leave_nothing_behind(
    served: Served,
    new_page: Pages,
    sessions: list[weakref.ref[Session]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "UNUSED_SECONDS", 10)
    asked: list[int] = []

    class Counted(ListSource):
        def since(self, cursor: int, limit: int = 10_000) -> Any:
            asked.append(cursor)
            return super().since(cursor, limit)

    server = served(Counted(whole_run(20)))
    pages = [new_page().open(server.url) for _ in range(2)]
    for page in pages:
        page.wait_for_text("steps", "20 of 20")
    assert asked.count(0) == 1
    assert len(sessions) == 2
    for page in pages:
        page.page.close()
    wait_until(lambda: are_gone(sessions), "the sessions to go", 1.0)


def test_ports_are_found_freed_and_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second, third = (
        served(ended(whole_run(1))),
        served(ended(whole_run(1))),
        served(ended(whole_run(1)), port=0),
    )
    assert len({0, first.port, second.port, third.port}) == 4
    with pytest.raises(PortInUseError, match=rf"{first.port} is taken\. Choose another"):
        serve(ended(whole_run(1)), port=first.port)
    wait_until(lambda: health(first)["status"] == "finished")
    answer = health(first)
    assert (answer["run"], answer["url"], answer["lost"]) == ("made-up", first.url, 0)
    assert answer["pid"] > 0
    assert answer["version"]
    third.stop()
    third.stop()
    assert served(ended(whole_run(1)), port=third.port).port == third.port
    with pytest.raises(NotARunError):
        serve(tmp_path)
    with pytest.raises(InvalidArgumentError, match="got int"):
        serve(3)

    def refuse(self: socket.socket, address: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "bind", refuse)
        with pytest.raises(PortInUseError, match=r"127\.0\.0\.1:80 may be used by root only\."):
            serve(ended(whole_run(1)), port=80)


class Proxy(threading.Thread):
    """Shows a server under a path, as a notebook's proxy does, which takes the path away."""

    def __init__(self, port: int, path: str) -> None:
        super().__init__(daemon=True)
        self.target, self.path = port, path
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.open: list[socket.socket] = [self.listening]

    def run(self) -> None:
        while True:
            try:
                client, _ = self.listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            self.open += [client, server]
            path = f" {self.path}/".encode()
            for source, sink, old in ((client, server, path), (server, client, None)):
                pump = threading.Thread(target=self.pump, args=(source, sink, old), daemon=True)
                pump.start()

    def pump(self, source: socket.socket, sink: socket.socket, old: bytes | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data.replace(old, b" /") if old else data)
            sink.shutdown(socket.SHUT_WR)

    def stop(self) -> None:
        self.listening.shutdown(socket.SHUT_RDWR)
        self.join()
        for connection in self.open:
            connection.close()


def test_it_works_behind_a_proxy_that_removes_a_path(served: Served, new_page: Pages) -> None:
    with socket.create_server(("127.0.0.1", 0)) as trial:
        port = trial.getsockname()[1]
    proxy = Proxy(port, "/user/me/proxy/5006")
    proxy.start()
    served(ended(whole_run(5)), port=port, origins=(f"127.0.0.1:{proxy.port}",))
    try:
        page = new_page().open(f"http://127.0.0.1:{proxy.port}/user/me/proxy/5006/")
        page.wait_for_text("steps", "5 of 5")
        page.page.close()
    finally:
        proxy.stop()
