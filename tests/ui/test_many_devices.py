"""Pages of runs on very many devices: equal neighbours share a row, and nothing is left out."""

from __future__ import annotations

import pytest

from distlab.events import Event, Unknown
from distlab.folds import Folds
from distlab.page import facts
from tests.page.test_grids import run_on as run_on_mesh
from tests.synthetic import beginning, sizes_of, steps
from tests.ui.conftest import Pages, Served, ended


def run_on(replicas: int, count: int = 33, batch: int = 4_096) -> list[Event | Unknown]:
    return [*beginning(replicas), *steps(count, replicas=replicas, batch=batch, source=10_000)]


@pytest.mark.parametrize("replicas", [32, 1_024])
def test_rows_of_a_batch_add_up_however_many_replicas(replicas: int) -> None:
    folds = Folds()
    folds.add(run_on(replicas))
    found = facts.batch_facts(folds.batch(2), folds.columns("batches"))
    sizes = sizes_of(10_000 - 2 * 4_096, 4_096, replicas)
    if replicas <= 32:
        assert [row["size"] for row in found["batch_sizes"]] == sizes
    else:
        assert len(found["batch_sizes"]) == len(found["batch_pieces"]) <= 4
        empty = sum(size == 0 for size in sizes)
        assert found["batch_sizes"][-1]["text"] == f"{empty:,} \u00d7 empty".replace(",", "\u202f")
    last_rows = [row[1] for row in found["batch_pieces"] if row[1] != "none"][-1]
    assert last_rows.endswith(f"to {sum(sizes) - 1:,}".replace(",", "\u202f"))


def test_every_page_draws_very_many_devices(served: Served, new_page: Pages) -> None:
    replicas = 1_024
    page = new_page().open(served(ended(run_on(replicas))).url)
    page.wait_for_text("devices", f"{replicas:,} simulated devices".replace(",", "\u202f"))
    for name in ("batches", "devices", "steps", "reductions", "placement", "compile", "events"):
        page.tab(name)
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 1280
    page.tab("batches")
    page.wait_for_text("batch_number", "32")
    assert page.page.locator(".sizes li").count() <= 4
    assert page.data("batches", "replicas")["name"] == [f"CPU:{n}" for n in range(32)]
    page.page.locator(".sizes button").last.click()  # those that stayed empty
    page.page.wait_for_function(
        "() => Bokeh.documents[0].roots().find((root) => root.name === 'batches').references()"
        ".values().find((model) => model.name === 'replicas').get_column('size')"
        ".every((size) => size === 0)"
    )
    page.tab("devices")
    group = replicas // 64
    names = page.data("devices", "devices")["device"]
    assert names[1] == f"CPU:{group} to CPU:{2 * group - 1}"
    page.page.select_option("section[data-page=devices] .device-part", "64")
    page.page.wait_for_function(
        "() => Array.from(Bokeh.documents[0].roots().find((root) => root.name === 'devices')"
        ".references()).find((model) => model.name === 'devices' && model.get_column)"
        ".get_column('device')[0] === 'CPU:64'"
    )
    page.tab("placement")
    page.page.wait_for_function(
        "() => new Set(Array.from(Bokeh.documents[0].roots()"
        ".find((root) => root.name === 'placement').references())"
        ".find((model) => model.name === 'placement' && model.get_column)"
        ".get_column('device')).size === 64"
    )
    assert page.page.input_value("section[data-page=placement] .device-part") == "64"
    assert page.data("placement", "placement")["device"][0] == "CPU:64"
    page.tab("steps")
    page.page.wait_for_function(
        "() => Bokeh.documents[0].get_model_by_name('timeline_lanes').get_column('lane').length"
        " === 66"
    )


def test_a_mesh_is_drawn_with_a_cell_a_device(served: Served, new_page: Pages) -> None:
    axes = {"data": 16, "fsdp": 16, "model": 4}
    page = new_page().open(served(ended(run_on_mesh(axes))).url)
    for tab, cells in (("placement", 2 * 1_024), ("devices", 1_024), ("batches", 1_024)):
        page.tab(tab)
        drawn = page.page.locator(f"section[data-page={tab}] .grids td[title]")
        drawn.nth(cells - 1).wait_for()
        assert drawn.count() == cells
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 1280
    page.tab("reductions")
    assert list(page.data("axes", "axis_bars")["name"]) == ["data", "model"]
