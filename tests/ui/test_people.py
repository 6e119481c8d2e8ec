"""Pages for all people: axe-core finds nothing serious, keys are enough, 200 % breaks nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe

from distlab.runs.run_file import RunFile
from distlab_dashboard import DashboardServer
from tests.synthetic import whole_run
from tests.ui.conftest import Pages, serving

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
    with serving(root) as made:
        yield made


@pytest.mark.timeout(600)
def test_pages_are_for_keys_and_axe_finds_nothing_serious(
    library: DashboardServer, new_page: Pages
) -> None:
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
    page.wait_for_text("steps", "60 of 60")
    found = {}
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for name, scheme in itertools.product(PAGES, schemes):
        page.tab(name)
        page.page.emulate_media(color_scheme=scheme)
        rules = {"runOnly": ["color-contrast"]} if scheme == "dark" else {}
        answer = Axe().run(page.page, options={"resultTypes": ["violations"], **rules}).response
        assert answer["passes"], "axe looked at nothing"
        serious = [
            (one["id"], [node["html"][:160] for node in one["nodes"]])
            for one in answer["violations"]
            if one["impact"] in {"serious", "critical"}
        ]
        if serious:
            found[name, scheme] = serious
    assert found == {}
