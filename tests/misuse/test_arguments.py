"""Every argument of every verb gets every value of `VALUES`: the right result, or a typed error
that names the value and the remedy, and everything stays as it was. The rows are in `arguments`."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import distlab as dl
from tests.misuse.arguments import AREAS
from tests.misuse.table import TABLE, Row, verdict
from tests.misuse.values import VALUES
from tests.misuse.world import World

pytestmark = pytest.mark.timeout(240)  # no misuse may hang

CASES = [
    pytest.param(
        row,
        eagerly,
        id=f"{row.call.__module__.rsplit('.', 1)[-1]}:{name}{'-eagerly' if eagerly else ''}",
    )
    for name, row in TABLE.items()
    for eagerly in ((False, True) if row.on_replicas else (None,))
]


@pytest.fixture(scope="module")
def used_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """One world for all rows."""
    return World(tmp_path_factory.mktemp("misuse"))


@pytest.fixture
def world(used_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The world, in a folder of the row's own: values name files, too."""
    monkeypatch.chdir(tmp_path)
    used_world.folder = tmp_path
    return used_world


def _outcome(world: World, row: Row, value: Any, eagerly: bool | None) -> BaseException | None:
    """Calls the verb, and returns the error that it raised."""
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")  # accepted values may have no effect, and say so
            if eagerly is None:
                row.call(world, value)
            else:
                options = dl.RunOptions(run_eagerly=eagerly)
                world.strategy.run(lambda: row.call(world, value), options=options)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test judges it
        return error
    return None


@pytest.mark.parametrize(("row", "eagerly"), CASES)
def test_an_argument_accepts_these_values_and_refuses_all_others(
    world: World, row: Row, eagerly: bool | None
) -> None:
    wrong: list[str] = []
    for name, make in VALUES.items():
        value = make(world)
        error = _outcome(world, row, value, eagerly)
        found = verdict(row, name, value, error)
        if error is None:
            world.restore()
        try:
            world.require_same_state()
        except AssertionError as harm:
            found += f" AND DID HARM: {harm!r:.300}"
            world = World(world.folder)
        if found:
            wrong.append(f"{name}: {found}")
    assert not wrong, "\n".join(wrong)
    world.require_unharmed()


def test_each_area_has_rows() -> None:
    assert len(TABLE) >= 180
    assert {row.call.__module__ for row in TABLE.values()} == {area.__name__ for area in AREAS}
