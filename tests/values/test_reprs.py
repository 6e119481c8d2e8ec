"""HTML of values for notebooks: their devices and numbers, with all text escaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

import distlab as dl
from distlab.events import Step
from distlab.runs.run_file import RunFile
from distlab.text.html import card
from tests.recording import samples
from tests.synthetic import beginning, compiled, steps


class Cells(HTMLParser):
    """The texts of a table's cells; asserts that all tags are closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
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


def test_large_deleted_empty_and_host_values_are_not_fetched(
    strategy: dl.Strategy,
) -> None:
    make = strategy.experimental_distribute_values_from_function
    large = jax.block_until_ready(make(lambda _: jnp.zeros((1024, 1024))))
    assert {row[-1] for row in rows_of(large)} == {"\u2026"}
    deleted = make(lambda _: jnp.zeros(3))
    deleted.stacked.delete()
    assert {row[1] for row in rows_of(deleted)} == {"deleted"}
    empty = jax.block_until_ready(make(lambda _: jnp.zeros((0, 3))))
    assert {row[-1] for row in rows_of(empty)} == {"\u2013"}
    on_host = dl.PerReplica(np.arange(6).reshape(3, 2))
    assert rows_of(on_host)[1] == ["1", "host", "[2]", "16 B", "2, 3"]


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


def test_a_dataset_shows_what_each_replica_gets(strategy: dl.Strategy) -> None:
    features = {"x": np.zeros((12, 4), np.float32), "y": np.zeros(12, np.int32)}
    dataset = dl.data.Dataset.from_tensor_slices(features).batch(6)
    shown = strategy.experimental_distribute_dataset(dataset)
    assert rows_of(shown) == [["['x']", "float32[?, 4]"], ["['y']", "int32[?]"]]
    assert "2 steps per epoch" in shown._repr_html_()


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


def recorded(folder: Path, function: str = "<b>step</b>") -> dl.Run:
    compile_ = compiled(8)
    events = [
        *beginning()[:2],
        msgspec.structs.replace(compile_, function=function),
        msgspec.structs.replace(
            compile_, program=1, cause="new shapes", changed="x: [8,64] -> [5,64]", collectives=[],
            flops=3.4e9, peak_bytes=20_000,
        ),
        *(event for event in steps(4) if isinstance(event, Step)),
    ]  # fmt: skip
    file = RunFile(folder, "programs")
    file.write(events)
    file.close()
    return dl.Run.open(folder)


def test_a_program_shows_its_devices_and_what_they_exchange(tmp_path: Path) -> None:
    with recorded(tmp_path) as run:
        first, second = run.programs()
    cells = {row[0]: row[-1] for row in rows_of(first)}
    assert ["y: int32[8]"] in rows_of(first)
    assert cells["runs on"] == ", ".join(f"CPU:{n}" for n in range(8))
    assert cells["each replica gets"] == "x: float32[8,64]"
    assert cells["devices exchange"] == "all-reduce of 9.64 kB: float32 (in groups of 8)"
    assert cells["why compiled"] == "new function, in 0.11 s"
    assert "<b>step" not in (first._repr_html_() or "")
    assert first.steps == 4
    told = {row[0]: row[-1] for row in rows_of(second)}
    assert told["why compiled"] == "new shapes: x: [8,64] \u2192 [5,64], in 0.11 s"
    assert told["devices exchange"] == "nothing"
    assert told["work on each"] == "3.4 GFLOP"


def test_programs_are_a_sequence_and_a_table(tmp_path: Path) -> None:
    with recorded(tmp_path) as run:
        programs = run.programs()
    assert len(programs) == 2
    assert len(programs[1:]) == 1
    assert rows_of(programs)[0][:4] == ["<b>step</b>", "new function", "4", "all-reduce of 9.64 kB"]
    assert repr(programs[0]) == (
        "<Program of <b>step</b>: new function, 4 steps on 8 devices; all-reduce of 9.64 kB>"
    )


def test_a_long_table_says_what_it_leaves_out() -> None:
    html = card("t", "f", ("a",), [[str(n)] for n in range(40)])
    assert len(Cells(html).rows) == 1 + 16
    assert "and 24 more" in html


def test_a_dataset_says_which_dtype_the_devices_get(strategy: dl.MirroredStrategy) -> None:
    dataset = dl.data.Dataset.range(32).map(lambda n: {"n": n, "half": n / np.float32(2)}).batch(16)
    distributed = strategy.experimental_distribute_dataset(dataset)
    told = dict(rows_of(distributed)[1:])
    first = next(iter(distributed))
    wide = jnp.arange(1).dtype == np.int64
    assert (
        str(strategy.experimental_local_results(first["n"])[0].dtype) == told["['n']"].split("[")[0]
    )
    assert told["['n']"] == ("int64[?]" if wide else "int32[?], from int64")
