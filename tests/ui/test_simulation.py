"""A step of this process on other numbers of replicas, simulated from the page Compile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp

import distlab as dl
from distlab.recording import RingRecorder
from tests.ui.conftest import Pages, Served


def test_a_live_page_simulates_and_a_recorded_one_shows_the_call(
    recorder: RingRecorder, served: Served, new_page: Pages, tmp_path: Path
) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])

    def summing_step(x: Any) -> Any:
        return dl.get_replica_context().all_reduce("SUM", x)

    with dl.record(tmp_path / "run") as recording:
        strategy.run(summing_step, (jnp.zeros(100),))
        server = served(recording)
        page = new_page(width=800, scheme="light").open(server.url)
        page.tab("compile")
        form = page.page.locator(".simulate")
        page.page.select_option(".simulated-step", "summing_step")
        page.page.fill(".simulated-sizes", "4, many")
        form.locator("button").click()
        form.get_by_text("Numbers of replicas are like 16, 64").wait_for()
        page.page.fill(".simulated-sizes", "4, 16")
        form.locator("button").click()
        page.page.locator(".simulated tbody tr").nth(1).wait_for()
        texts = page.rows(".simulated")
        assert [row[0] for row in texts] == ["replica 4", "replica 16"]
        assert [row[5] for row in texts] == ["all-reduce 600 B", "all-reduce 750 B"]
    recorded = new_page(width=800, scheme="dark").open(served(dl.Run.open(tmp_path / "run")).url)
    recorded.tab("compile")
    recorded.page.locator("pre").get_by_text("dl.simulate(step").wait_for()
    assert not recorded.page.locator(".simulate").is_visible()
    assert page.errors == recorded.errors == []
