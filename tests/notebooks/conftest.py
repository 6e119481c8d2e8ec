"""One JupyterLab and one browser for all tests of notebooks that need them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.notebooks.lab import Lab, Seen

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="session")
def browser(chromium: Path) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("lab")) as started:
        yield started


@pytest.fixture
def seen(lab: Lab, browser: Browser) -> Iterator[Seen]:
    page = browser.new_page(viewport={"width": 1_060, "height": 1_400})
    yield Seen(page, lab)
    page.close()
    for kernel in lab.request("api/kernels"):
        lab.request(f"api/kernels/{kernel['id']}", "DELETE")
