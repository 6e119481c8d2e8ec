"""Batches of several datasets on the page."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab_dashboard import DashboardServer
from tests.patience import wait_until
from tests.ui.conftest import Pages, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardServer]:
    """A run with two epochs, each with an evaluation, of which only the first is named."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    options = dl.data.Options()
    options.dataset_name = "digits"
    whole = dl.data.Dataset.from_tensor_slices(np.arange(20.0, dtype=np.float32))
    train = strategy.experimental_distribute_dataset(whole.batch(4).with_options(options))

    def train_step(x: jnp.ndarray) -> jnp.ndarray:
        return dl.get_replica_context().all_reduce("SUM", x.sum())

    def test_step(x: jnp.ndarray) -> jnp.ndarray:
        return x.max()

    with dl.record(folder):
        for _ in range(2):
            for batch in train:
                strategy.run(train_step, args=(batch,))
            for batch in strategy.experimental_distribute_dataset(whole.take(5).batch(3)):
                strategy.run(test_step, args=(batch,))
    with serving(folder) as made:
        yield made


def test_batches_of_one_dataset_can_be_chosen(server: DashboardServer, new_page: Pages) -> None:
    page = new_page().open(server.url)
    page.page.wait_for_selector("[data-text=newest_batch]:not([hidden])")
    assert page.text("newest_batch").startswith("Batch 11 of the data (digits, test_datasets.py:")
    wait_until(lambda: page.data("newest", "replicas")["size"] == [2, 2])
    page.tab("batches")
    page.wait_for_text("batch_number", "13")
    page.page.wait_for_selector(".dataset option:nth-child(3)", state="attached")
    train, test = page.page.locator(".dataset option").all_inner_texts()[1:]
    assert train.startswith("digits, test_datasets.py:")
    assert train.endswith(": 10 batches")
    assert test.startswith("test_step, test_datasets.py:")
    assert test.endswith(": 4 batches")
    assert page.text("batch_dataset") == test.removesuffix(": 4 batches")
    page.page.select_option(".dataset", "1")
    for move, number in (("-1", "12"), ("-1", "6"), ("1", "12")):
        page.page.click(f'.step[data-move="{move}"]')
        page.wait_for_text("batch_number", number)
    wait_until(lambda: page.data("history", "history")["number"] == [5, 6, 12, 13])
    assert "dataset=1" in page.page.url
    page.page.select_option(".dataset", "0")
    page.wait_for_text("batch_number", "11")
    assert page.page.locator('.step[data-move="1"]').is_disabled()
    page.page.reload()  # its address has the dataset
    page.wait_for_text("batch_number", "11")
    page.page.wait_for_function("() => document.querySelector('.dataset').value === '0'")
