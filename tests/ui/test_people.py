"""Pages for all people: axe-core finds nothing serious, keys are enough, 200 % breaks nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe

from distlab.runs.run_file import RunFile
from distlab_dashboard import DashboardServer, serve
from tests.synthetic import whole_run
from tests.ui.conftest import Pages

PAGES = (
    *("runs", "overview", "batches", "devices", "steps", "reductions", "placement", "compile"),
    *("events", "compare"),
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardServer]:
    root = tmp_path_factory.mktemp("people")
    for name in ("first", "second"):
        file = RunFile(root / name, name)
        file.write(whole_run(60))
        file.close()
    made = serve(root)
    yield made
    made.stop()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_page(
    library: DashboardServer, new_page: Pages, scheme: Literal["light", "dark"]
) -> None:
    page = new_page(scheme=scheme).open(f"{library.url}?run=first&compare=second")
    page.wait_for_text("steps", "60 of 60")
    found = {}
    for name in PAGES:
        page.tab(name)
        answer = Axe().run(page.page, options={"resultTypes": ["violations"]}).response
        assert answer["passes"], "axe looked at nothing"
        report = answer["violations"]
        serious = [
            (one["id"], [node["html"][:160] for node in one["nodes"]])
            for one in report
            if one["impact"] in {"serious", "critical"}
        ]
        if serious:
            found[name] = serious
    assert found == {}


def test_every_page_is_reached_by_keys_alone(library: DashboardServer, new_page: Pages) -> None:
    page = new_page().open(f"{library.url}?run=first&compare=second")
    reached = []
    for _ in range(len(PAGES) + 6):
        page.page.keyboard.press("Tab")
        name = page.page.evaluate("() => document.activeElement.dataset?.page ?? ''")
        if name:
            page.page.keyboard.press("Enter")
            page.page.wait_for_selector(f'section[data-page="{name}"]:not([hidden])')
            outline = page.page.evaluate(
                "() => getComputedStyle(document.activeElement).outlineStyle"
            )
            assert outline == "solid"
            reached.append(name)
    assert sorted(reached) == sorted(PAGES)


def test_at_twice_the_size_nothing_is_wider_than_the_window(
    library: DashboardServer, new_page: Pages
) -> None:
    """A window of 1280 pixels at 200 % has room for 640 of the page's."""
    page = new_page(width=640).open(f"{library.url}?run=first&compare=second")
    wide = {}
    for name in PAGES:
        page.tab(name)
        width = page.page.evaluate("() => document.documentElement.scrollWidth")
        if width > 640:
            wide[name] = width
    assert wide == {}
