"""What notebooks show of values: where pieces lie, as text that can't become HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab._html import card
from distlab.recording.run_file import RunFile
from tests.recording import samples


class Cells(HTMLParser):
    """The texts of a table's cells, and that all tags are closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:  # noqa: ARG002 - the base's
        assert tag in {"div", "b", "span", "table", "thead", "tbody", "tr", "th", "td"}
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in {"td", "th"}:
            self.rows[-1].append(data)


def rows_of(value: Any) -> list[list[str]]:
    """The rows of a value's table, without its headings."""
    return Cells(value._repr_html_()).rows[1:]


@pytest.fixture
def strategy() -> dl.MirroredStrategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])


def test_a_strategy_shows_the_device_of_each_replica(strategy: dl.Strategy) -> None:
    assert [row[:2] for row in rows_of(strategy)] == [[str(n), f"CPU:{n}"] for n in range(3)]
    assert "3 replicas on simulated devices" in strategy._repr_html_()


def test_components_show_device_shape_bytes_and_first_numbers(strategy: dl.Strategy) -> None:
    rows = np.arange(7, dtype=np.float32)
    dataset = dl.data.Dataset.from_tensor_slices(rows).batch(7)
    (batch,) = strategy.experimental_distribute_dataset(dataset)
    jax.block_until_ready(batch.stacked)
    assert rows_of(batch) == [
        ["0", "CPU:0", "[3]", "12 B", "0, 1, 2"],
        ["1", "CPU:1", "[3]", "12 B", "3, 4, 5"],
        ["2", "CPU:2", "[1]", "4 B", "6"],
    ]
    assert "of different shapes" in batch._repr_html_()


def test_large_deleted_empty_and_host_values_are_shown_without_being_fetched(
    strategy: dl.Strategy,
) -> None:
    make = strategy.experimental_distribute_values_from_function
    large = jax.block_until_ready(make(lambda _: jnp.zeros((1024, 1024))))
    assert {row[-1] for row in rows_of(large)} == {"\u2026"}
    given_away = make(lambda _: jnp.zeros(3))
    given_away.stacked.delete()
    assert {row[1] for row in rows_of(given_away)} == {"given away"}
    empty = jax.block_until_ready(make(lambda _: jnp.zeros((0, 3))))
    assert {row[-1] for row in rows_of(empty)} == {"\u2013"}
    on_host = dl.PerReplica(np.arange(6).reshape(3, 2))
    assert rows_of(on_host)[1] == ["1", "host", "[2]", "16 B", "2, 3"]


def test_a_traced_value_says_so(strategy: dl.Strategy) -> None:
    value = strategy.experimental_distribute_values_from_function(lambda _: jnp.zeros(3))
    seen: list[str] = []

    @jax.jit
    def look(given: Any) -> Any:
        seen.append(given._repr_html_())
        return given

    look(value)
    assert "being traced" in seen[0]


@pytest.mark.parametrize(
    ("make", "copies"),
    [
        (lambda: dl.MirroredStrategy(["CPU:0", "CPU:1"]), ["CPU:0", "CPU:1"]),
        (
            lambda: dl.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"]),
            ["CPU:0"],
        ),
    ],
)
def test_a_variable_shows_where_its_copies_lie(make: Any, copies: list[str]) -> None:
    with make().scope():
        weights = dl.Variable(jnp.arange(5.0), name="<script>alert(1)</script>")
    jax.block_until_ready(weights.storage.array)
    html = weights._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert [row[1] for row in rows_of(weights)] == copies
    assert {row[3] for row in rows_of(weights)} == {"0, 1, 2, 3, \u2026"}


def test_a_mirrored_value_shows_its_copies(strategy: dl.Strategy) -> None:
    value = dl.Mirrored(jax.block_until_ready(jax.device_put(jnp.arange(2), strategy.mesh.whole)))
    assert [row[1:] for row in rows_of(value)] == [[f"CPU:{n}", "8 B", "0, 1"] for n in range(3)]


def test_a_dataset_shows_what_each_replica_gets(strategy: dl.Strategy) -> None:
    features = {"x": np.zeros((12, 4), np.float32), "y": np.zeros(12, np.int32)}
    dataset = dl.data.Dataset.from_tensor_slices(features).batch(6)
    shown = strategy.experimental_distribute_dataset(dataset)
    assert rows_of(shown) == [["['x']", "float32[?, 4]"], ["['y']", "int32[?]"]]
    assert "2 steps an epoch" in shown._repr_html_()


def test_a_run_shows_its_summary(tmp_path: Path) -> None:
    file = RunFile(tmp_path, "a <b>run</b>")
    file.write([samples.run(), samples.step(0), samples.end()])
    file.close()
    with dl.Run.open(tmp_path) as run:
        cells = dict(Cells(run._repr_html_()).rows[1:])
        assert "<b>run</b>" not in re.sub(r"<b>Run .*?</b> <span", "", run._repr_html_())
        assert cells["status"] == "finished"
        assert cells["examples"] == "64"
        assert repr(run) == f"<Run 'a <b>run</b>' in {tmp_path}>"


def test_a_long_table_says_what_it_leaves_out() -> None:
    html = card("t", "f", ("a",), [[str(n)] for n in range(40)])
    assert len(Cells(html).rows) == 1 + 16
    assert "and 24 more" in html
