"""Pages of a mesh: arrays, batches, busy shares and collectives drawn by its axes."""

from __future__ import annotations

import math
import re

import msgspec
import numpy as np

from distlab.charts import AxisBars, PlacementTable, ReductionBars, traffic_row
from distlab.events import (
    ArrayPlace,
    Collective,
    DeviceSample,
    Event,
    Placement,
    Sharding,
    Strategy,
    Unknown,
)
from distlab.folds import Folds
from distlab.folds.reductions import Pair
from distlab.page import grids
from distlab.page.board import Board
from distlab.page.divided import pair_rows
from distlab.page.facts.cards import placement_facts
from distlab.page.view import View
from tests.recording import samples
from tests.synthetic import whole_run

SMALL = {"data": 4, "model": 2}
LARGE = {"data": 16, "fsdp": 16, "model": 4}


def place(name: str, shape: list[int], spec: list[list[str]], size: int) -> ArrayPlace:
    return ArrayPlace(name=name, dtype="float32", shape=shape, spec=spec, bytes_per_device=size)


def collective(kind: str, axes: list[str], sent: int, shift: int | None = None) -> Collective:
    return Collective(
        kind=kind, operand_bytes=sent, dtype="f32", operands=1, participants=8, times_per_step=1,
        source="", wire_bytes=sent, group=4, axes=axes, shift=shift, purpose="gradients",
        names=["w", "b", "c", "d"],
    )  # fmt: skip


def run_on(axes: dict[str, int]) -> list[Event | Unknown]:
    """A program observed on a mesh: one step, one batch and one watched window."""
    count = math.prod(axes.values())
    names = [f"CPU:{n}" for n in range(count)]
    inputs = [
        place("state['w']", [64, 32], [[], ["model"]], 4096),
        place("state['b']", [32], [["model"]], 64),
        place("x", [64, 8], [["data"], []], 512),
    ]
    collectives = [
        collective("all-reduce", ["data"], 1000),
        collective("collective-permute", ["model"], 50, shift=1),
        collective("all-reduce", ["data"], 200),
    ]
    compiled = msgspec.structs.replace(
        samples.compiled(), strategy=0, program=0, mesh=axes, inputs=inputs, collectives=collectives
    )
    return [
        samples.run(),
        Strategy(time_ns=2, strategy=0, name="Mesh", devices=names, form="mesh", axes=axes),
        compiled,
        Sharding(
            time_ns=3, strategy=0, dataset=0, batch=0, epoch=0, sizes=[], nominal=16, indices=None,
            bytes=2048, wait_ns=0, transfer_ns=0, policy="rebatch", mesh=axes,
            spec=[["data"], []], shape=[64, 8],
        ),
        msgspec.structs.replace(samples.step(0), strategy=0, program=0),
        DeviceSample(
            time_ns=2_000, strategy=0, start_ns=1_000, busy_ns=[500] * (count - 1) + [1000],
            memory_bytes=None, process_memory_bytes=1,
        ),
    ]  # fmt: skip


def read(events: list[Event | Unknown]) -> Folds:
    folds = Folds()
    folds.add(events)
    return folds


def test_arrays_of_a_mesh_have_one_column_of_bytes() -> None:
    columns = read(run_on(SMALL)).columns("placement")
    assert columns["name"] == ["state['w']", "x", "state['b']"]
    assert columns["layout"] == ["P(None, 'model')", "P('data')", "P('model')"]
    assert columns["bytes"].tolist() == [[4096], [512], [64]]
    assert (columns["device"], columns["devices"].tolist()) == (["each of 8"], [8])


def test_arrays_divided_alike_share_a_drawing() -> None:
    first, second = grids.placement_pictures(read(run_on(SMALL)).columns("placement"))
    assert first.title == "P(None, 'model')"
    assert first.facts == "2 arrays, 4.16 kB a device; 2 blocks, 4 copies of each along data"
    assert first.texts == ["0", "1"] * 4
    assert second.details[2] == "x[16:32, 0:8]"


def divided_run() -> list[Event | Unknown]:
    """Variables of a strategy of four replicas: one in parts, one mirrored."""
    names = [f"CPU:{n}" for n in range(4)]

    def placed(array: int, name: str, shape: list[int], each: int, cut: bool) -> Placement:
        return Placement(
            time_ns=3, strategy=0, array=array, name=name, action="place", shape=shape,
            layout="divided" if cut else "replicated", dtype="float32", devices=names,
            bytes_per_device=[each] * 4, spec=[["replica"], []] if cut else [],
        )  # fmt: skip

    return [
        samples.run(),
        Strategy(time_ns=2, strategy=0, name="M", devices=names, axes={"replica": 4}),
        placed(0, "w", [64, 32], 2048, cut=True),
        placed(1, "b", [32], 128, cut=False),
    ]


def test_a_divided_variable_has_its_part_on_each_device() -> None:
    folds = read(divided_run())
    columns = folds.columns("placement")
    assert columns["layout"] == ["P('replica')", "replicated"]
    rows = ("0:16", "16:32", "32:48", "48:64")
    assert columns["part"] == [[f"[{row}, 0:32]" for row in rows], []]
    assert columns["device_bytes"].tolist() == [2176] * 4
    assert columns["whole_bytes"].tolist() == [8320] * 4
    assert placement_facts(columns) == {
        "mesh_placement": "variables, on replica 4",
        "divides_variables": True,
        "variable_bytes": "2.18 kB a device in parts; 8.32 kB as whole copies",
    }
    parts, whole = grids.placement_pictures(columns)
    assert parts.facts == "1 array, 2.05 kB a device; 4 blocks, one on each device"
    assert whole.facts == "1 array, 128 B a device; a whole copy on each of 4 devices"


def test_divided_variables_and_arrays_of_a_mesh_share_a_table() -> None:
    both = [msgspec.structs.replace(e, strategy=1) if hasattr(e, "strategy") else e
            for e in run_on(SMALL)]  # fmt: skip
    chart = PlacementTable()
    chart.update(read([*divided_run(), *both[1:]]).columns("placement"))
    rows = dict(zip(chart.source.data["variable"], chart.source.data["device"], strict=True))
    assert list(rows) == ["w", "b", "state['w']", "x", "state['b']", "total", "not divided"]


def test_totals_of_divided_variables_stand_above_those_of_copies() -> None:
    chart = PlacementTable()
    chart.update(read(divided_run()).columns("placement"))
    rows = chart.source.data
    assert list(rows["variable"][::4]) == ["w", "b", "total", "not divided"]
    assert list(rows["text"][::4]) == ["2.05 kB", "128 B", "2.18 kB", "8.32 kB"]
    assert rows["detail"][1] == "float32[64, 32] P('replica'), holds [16:32, 0:32]"


def test_a_reduction_along_an_axis_names_its_first_group() -> None:
    sum_, shift = collective("all-reduce", ["data"], 1000), collective("all-gather", ["model"], 50)
    compiled = msgspec.structs.replace(
        samples.compiled(), program=0, mesh=SMALL,
        collectives=[sum_, msgspec.structs.replace(shift, group=2)],
    )  # fmt: skip
    step = msgspec.structs.replace(samples.step(0), program=0)
    columns = read([samples.run(), compiled, step]).columns("reductions")
    names = [f"CPU:{n}" for n in range(8)]
    rows = [traffic_row(columns, place, devices=names) for place in (0, 1)]
    assert [row["device"] for row in rows if row] == [
        ["CPU:0", "CPU:2", "CPU:4", "CPU:6"],
        ["CPU:0", "CPU:1"],
    ]


def test_gathers_and_scatters_of_a_divided_variable_are_a_row() -> None:
    whole = msgspec.structs.replace(
        collective("all-gather", ["replica"], 700), purpose="whole", names=["w"]
    )
    scatter = msgspec.structs.replace(collective("reduce-scatter", ["replica"], 700), names=["w"])
    compiled = msgspec.structs.replace(
        samples.compiled(), program=0, collectives=[whole, whole, scatter], mesh={"replica": 8}
    )
    step = msgspec.structs.replace(samples.step(0), program=0)
    columns = read([samples.run(), compiled, step]).columns("reductions")
    assert columns["pairs"] == [Pair("w", 2, 1400, 1, 700)]
    assert columns["what"] == ["whole of w", "gradients of w"]
    assert pair_rows(columns) == {
        "variable": ["w"],
        "gathered": ["2 \u00d7 700 B"],
        "scattered": ["700 B"],
        "sent": ["2.10 kB"],
    }


def test_shares_lie_at_their_places_of_the_mesh() -> None:
    [picture] = grids.device_pictures(read(run_on(SMALL)).columns("devices"))
    assert picture.texts == ["50 %"] * 7 + ["100 %"]
    [html] = grids.device_rows(read(run_on(SMALL)).columns("devices"))["html"]
    assert 'title="data 3, model 1: CPU:7, busy 100 %"' in html


def test_parts_of_a_batch_are_drawn_on_the_mesh() -> None:
    [picture] = grids.batch_pictures(read(run_on(SMALL)).batch())
    assert picture.texts == ["0", "0", "1", "1", "2", "2", "3", "3"]


def test_another_batch_of_a_stored_run_is_drawn() -> None:
    *events, batch, step, sample = run_on(SMALL)
    later = msgspec.structs.replace(batch, batch=1, spec=[[], ["model"]])
    folds, board = read([*events, batch, later, step, sample]), Board()
    drawn = []
    for number in (0, 1):
        board.update(folds, View(page="batches", batch=number))
        drawn.append(dict(board._rows["batch_grids"]))
    assert drawn == [grids.batch_rows(folds.batch(number)) for number in (0, 1)]
    assert drawn[0] != drawn[1]


def test_1024_devices_have_a_cell_and_a_tooltip_each() -> None:
    folds = read(run_on(LARGE))
    for [html] in (
        grids.placement_rows(folds.columns("placement"))["html"],
        grids.device_rows(folds.columns("devices"))["html"],
    ):
        cells = re.findall(r'<td title="data \d+, fsdp \d+, model \d: ', html)
        assert len(cells) % 1024 == 0
        assert len(html) < 130 * len(cells)


def test_a_strategys_run_has_no_drawing_of_a_mesh() -> None:
    folds = Folds()
    folds.add(whole_run(20))
    assert grids.placement_rows(folds.columns("placement")) == {"html": []}
    assert grids.device_rows(folds.columns("devices")) == {"html": []}
    assert grids.batch_rows(folds.batch()) == {"html": []}
    assert not any(folds.columns("reductions")["along"])


def test_collectives_are_added_up_by_axis() -> None:
    columns = read(run_on(SMALL)).columns("reductions")
    bars, rows = AxisBars(), ReductionBars()
    bars.update(columns)
    rows.update(columns)
    assert dict(zip(bars.source.data["name"], bars.source.data["sent"], strict=True)) == {
        "data": 1200,
        "model": 50,
    }
    assert rows.source.data["participants"][-1] == "4 along model shift +1"
    assert rows.source.data["what"][0] == "gradients of w, b and 2 more"


def test_a_damaged_mesh_draws_nothing() -> None:
    for axes in ({"data": 1 << 40}, {"data": 0}, {"data": -4, "model": -2}, {"other": 8}):
        events = run_on(SMALL)
        events[2] = msgspec.structs.replace(events[2], mesh=axes)
        events[3] = msgspec.structs.replace(events[3], mesh=axes)
        folds = read(events)
        grids.batch_rows(folds.batch())
        drawn = grids.placement_pictures(folds.columns("placement"))
        assert all(len(picture.texts) <= 8 for picture in drawn)
        assert np.isfinite(folds.columns("placement")["device_bytes"]).all()
