"""One run of each notebook, and one JupyterLab for all tests that need it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.notebooks.executed import changes, execute, kinds, read
from tests.notebooks.lab import Lab, Seen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the module's notebook runs."""
    return tmp_path_factory.mktemp("notebook")


@pytest.fixture(scope="module")
def executed(request: pytest.FixtureRequest, folder: Path) -> Any:
    """The module's notebook (`NAME`) with its outputs: the stored ones, but for what varies."""
    ran, stored = execute(request.module.NAME, folder, short=True), read(request.module.NAME)
    assert kinds(ran) == kinds(stored), "store it again: make notebooks"
    assert changes(ran, stored) == [], "store it again: make notebooks"
    return ran


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
