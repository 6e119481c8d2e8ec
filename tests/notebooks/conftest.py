"""One JupyterLab for all tests of notebooks that need them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.notebooks.lab import Lab, Seen


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
