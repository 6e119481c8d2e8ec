"""The page of a coordinator in a real browser, of a run that its workers recorded."""

from __future__ import annotations

import time
from pathlib import Path

import jax.numpy as jnp
import pytest

import distlab as dl
from tests.strategies.parameter_servers import strategy_of
from tests.ui.conftest import Pages, Served


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("coordinated") / "run"
    with dl.record(made, probe=False):
        strategy = strategy_of(2, workers=2)
        coordinator = dl.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            weight, scale = dl.Variable(jnp.zeros((8, 4))), dl.Variable(1.0)

        def step() -> None:
            time.sleep(0.005)
            strategy.run(lambda: weight.assign_add(jnp.ones((8, 4)) * scale.value()))

        for _ in range(60):
            coordinator.schedule(step)
        coordinator.join()
    return made


def test_workers_and_links_are_shown(folder: Path, served: Served, new_page: Pages) -> None:
    width = 800
    page = new_page(width=width, scheme="dark")
    page.open(f"{served(folder).url}#servers")
    page.page.wait_for_function(
        "() => document.querySelector('.closures').tBodies[0].rows.length === 2"
    )
    page.page.wait_for_selector('section[data-page="servers"] canvas', state="attached")
    assert page.text("closures") == (
        "60 functions scheduled: 60 done, 0 running, 0 in the coordinator's queue. "
        "2 workers (threads of this process), 2 parameter servers."
    )
    said = page.page.locator('section[data-page="overview"] [data-text="undivided"]')
    assert str(said.text_content()).endswith("no batch is divided.")
    shown = page.rows(".closures")
    assert [row[0] for row in shown] == ["worker 0", "worker 1"]
    assert [row[1:3] for row in shown] == [["0", "0"]] * 2
    assert sum(int(row[3]) for row in shown) == 60
    assert {row[-1] for row in shown} == {"idle"}
    links = page.rows(".server_links")
    assert sum(int(row[2]) for row in links if row[1] == "server 0") == 60
    assert {(row[3], row[7]) for row in links} == {("0", "0")}  # threads send no messages
    assert page.data("closure_lanes", "closure_lanes")["worker"] == ["worker 0", "worker 1"]
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    assert (page.errors, page.foreign, page.serious()) == ([], [], [])
