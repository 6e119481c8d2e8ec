"""Pages for all people: keys are enough, and axe-core finds nothing serious, on a phone either."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Literal

import pytest

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
    looks: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 1280), ("dark", 390))
    for name, (scheme, width) in itertools.product(PAGES, looks):
        page.page.set_viewport_size({"width": width, "height": 800})
        page.tab(name)
        page.page.emulate_media(color_scheme=scheme)
        found[name, scheme] = page.serious()
    assert {place: serious for place, serious in found.items() if serious} == {}
