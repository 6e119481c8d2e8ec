"""The drawing of a reduction: senders, receivers and bytes."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from distlab.charts import Traffic, TrafficRow, traffic_row
from distlab.charts._transfers import _RING, plan
from distlab.charts.traffic import matrix
from distlab.folds import Folds
from distlab.programs.collectives import wire_bytes
from tests.synthetic import compiled, there, whole_run

INSIDE = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


def row(
    kind: str, how: str = "", *, devices: int = 8, group: int = 0, size: int = 9_640
) -> TrafficRow:
    return {
        "kind": kind,
        "how": how,
        "where": "inside train_step",
        "bytes": size,
        "participants": devices,
        "group": group or devices,
        "along": "",
        "device": [f"CPU:{device}" for device in range(devices)],
    }


def shown(columns: TrafficRow | None) -> Traffic:
    chart = Traffic()
    chart.update(columns)
    return chart


@pytest.mark.parametrize("kind", INSIDE)
def test_drawn_transfers_add_up_to_the_bytes_on_the_wire(kind: str) -> None:
    for devices in (1, 2, 3, 8, 16, 17, 64, 1_024):
        chart = shown(row(kind, devices=devices))
        drawn = sum(chart.source.data["bytes"]) + sum(chart.table.data["bytes"])
        # The events round down for each device.
        assert drawn == pytest.approx(devices * wire_bytes(kind, 9_640, devices), abs=devices)
    chart = shown(row(kind, devices=16, group=4))
    assert sum(chart.source.data["bytes"]) == pytest.approx(4 * wire_bytes(kind, 9_640, 4), abs=4)
    assert "16 devices in groups of 4" in " ".join(chart.notes.data["text"])
    assert max(map(len, chart.notes.data["text"])) <= 51  # as many as a phone has room for
    assert set(chart.source.data["sender"]) == {f"device {place}" for place in range(4)}


@pytest.mark.parametrize("stated", [4_097, 2**31, 2**62, -(2**62)])
def test_a_group_larger_than_any_list_is_not_drawn(stated: int) -> None:
    chart = shown(row("all-reduce", devices=1, group=stated))
    assert not len(chart.source.data["x0"])
    assert not len(chart.table.data["x"])
    assert "The transfers of so many devices are not drawn." in chart.notes.data["text"]


def test_an_all_reduce_is_a_ring_in_two_phases() -> None:
    chart = shown(row("all-reduce"))
    data = chart.source.data
    arrows = list(zip(data["sender"], data["receiver"], data["phase"], strict=True))
    assert arrows[0] == ("CPU:0", "CPU:1", "reduce-scatter")
    assert arrows[7] == ("CPU:7", "CPU:0", "reduce-scatter")
    assert arrows[8] == ("CPU:0", "CPU:1", "all-gather")
    assert len(arrows) == 16
    assert set(data["text"]) == {"8.44 kB"}
    assert chart.notes.data["text"] == [
        "all-reduce of 9.64 kB a device, inside train_step",
        "8 devices",
        "135 kB sent in all, 16.9 kB by each device",
        _RING,
        "\u25ac reduce-scatter: 7 rounds, 8 \u00d7 8.44 kB",
        "\u25ac all-gather: 7 rounds, 8 \u00d7 8.44 kB",
    ]


def test_a_star_ends_on_one_device() -> None:
    chart = shown(row("reduce SUM", "to one device"))
    data = chart.source.data
    assert set(data["receiver"]) == {"CPU:0"}
    assert data["sender"] == [f"CPU:{device}" for device in range(1, 8)]
    assert set(data["bytes"]) == {9_640}
    text = " ".join(chart.notes.data["text"])
    assert "As it runs here" in text
    assert "on average" in text


def test_a_tree_brings_every_value_to_the_first_device() -> None:
    for devices in (1, 2, 5, 8, 13):
        found = there(plan("reduce SUM", "hierarchical copy", size=10, devices=devices))
        has = [{device} for device in range(devices)]
        for phase in found.phases:
            for sender, receiver in phase.pairs.tolist():
                has[receiver] |= has[sender]
        assert has[0] == set(range(devices))
        assert found.total == 10 * (devices - 1)


def test_many_devices_are_a_table_of_rows() -> None:
    chart = shown(row("all-to-all", devices=1_024))
    assert len(chart.table.data["x"]) == 32 * 32
    assert chart.source.data["sender"] == []
    assert chart.table.data["sender"][0] == "CPU:0 to CPU:31"
    assert "in 32 rows: rows send" in chart.notes.data["text"][1]
    found = there(plan("all-to-all", "", size=4, devices=4))
    assert np.array_equal(matrix(found, 4), 1 - np.eye(4))
    assert matrix(found, 4, 2).tolist() == [[2, 4], [4, 2]]


def test_a_row_comes_from_the_folds_with_its_group() -> None:
    folds = Folds()
    assert traffic_row(folds.columns("reductions"), 0) is None
    folds.add(whole_run(10))
    chosen = there(traffic_row(folds.columns("reductions"), 0, devices=["a"] * 8))
    assert (chosen["kind"], chosen["how"], chosen["bytes"], chosen["group"]) == (
        *("all-reduce", "", 9_640, 8),
    )
    python = there(traffic_row(folds.columns("reductions"), 1))
    assert (python["kind"], python["how"]) == ("reduce MEAN", "to one device")
    assert traffic_row(folds.columns("reductions"), 2) is None
    program = compiled(8)
    one = msgspec.structs.replace(program.collectives[0], group=2)
    folds.add([msgspec.structs.replace(program, collectives=[one])])
    grouped = traffic_row(folds.columns("reductions"), 0)
    assert there(grouped)["group"] == 2


def test_an_algorithm_of_the_user_is_not_guessed() -> None:
    chart = shown(row("reduce SUM", "my own"))
    assert chart.source.data["sender"] == []
    assert 'transfers of the algorithm "my own" are unknown.' in " ".join(chart.notes.data["text"])
    columns: TrafficRow = {**row("$$x$$", "\\(y\\)"), "device": ["$$d$$"] * 8}
    chart = shown(columns)
    texts = [*chart.notes.data["text"], *_texts(chart)]
    assert not any("$$" in text or "\\(" in text for text in texts)


def _texts(chart: Traffic) -> list[str]:
    sources = chart.root.select({"type": type(chart.source)})
    data = [source.data for source in sources]
    return [text for one in data for name in ("text", "name") for text in one.get(name, [])]
