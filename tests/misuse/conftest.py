"""One strategy in use for all misuse of a module; each test checks that it was not harmed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.misuse.world import World


@pytest.fixture(scope="module")
def used_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One world for all tests of a module."""
    world = World(tmp_path_factory.mktemp("world"))
    yield world
    world.close()


@pytest.fixture
def world(used_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The world, in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    used_world.folder = tmp_path
    return used_world
