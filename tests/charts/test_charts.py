"""Charts fill their sources, and can be embedded anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pytest
from bokeh.embed import json_item
from bokeh.models import LabelSet, LinearColorMapper

from distlab.charts import (
    BatchHistory,
    BatchTiles,
    CapturedSpans,
    Chart,
    DeviceShares,
    PlacementTable,
    ProcessMemory,
    Rates,
    ReductionBars,
    StepTimeline,
    Traffic,
    loss_lines,
    other_lines,
    theme,
    traffic_row,
)
from distlab.charts.batches import size_text
from distlab.charts.devices import resample
from distlab.charts.reductions import how_text
from distlab.charts.sheet import as_pictures, fit, sheet
from distlab.charts.theme import colour, shades
from distlab.events import Metric
from distlab.folds import (
    DeviceColumns,
    Devices,
    Folds,
    MetricColumns,
    PlacementColumns,
    ReductionColumns,
)
from tests.synthetic import there, whole_run

C = TypeVar("C")


@dataclass(frozen=True)
class Case(Generic[C]):
    """A chart, what it shows of a run of 200 steps, and texts that its source then has."""

    make: Callable[[], Chart[C]]
    columns: Callable[[Folds], C]
    column: str
    texts: list[str]

    def shown(self, folds: Folds) -> Chart[C]:
        chart = self.make()
        chart.update(self.columns(folds))
        return chart


DEVICES = [f"CPU:{replica}" for replica in range(8)]
VARIABLES = ["dense/kernel", "head/kernel", "dense/bias", "head/bias", "averages", "total"]
CHARTS: dict[str, Case[Any]] = {
    "loss": Case(loss_lines, lambda f: f.columns("metrics"), "name", ["loss"]),
    "others": Case(other_lines, lambda f: f.columns("metrics"), "name", []),
    "rates": Case(Rates, lambda f: f.columns("steps"), "bin", ["250 ms"] * 9),
    "devices": Case(DeviceShares, lambda f: f.columns("devices"), "device", DEVICES),
    "memory": Case(
        ProcessMemory,
        lambda f: f.columns("devices"),
        "text",
        [f"{400 + (5 * sample + 4) / 100:.0f} MB" for sample in range(40)],
    ),
    "reductions": Case(
        ReductionBars, lambda f: f.columns("reductions"), "each", ["9.64 kB", "4 B"]
    ),
    "placement": Case(
        PlacementTable,
        lambda f: f.columns("placement"),
        "variable",
        [name for name in VARIABLES for _ in DEVICES],
    ),
    "captured": Case(CapturedSpans, lambda f: f.columns("captures"), "device", []),
    "history": Case(
        BatchHistory,
        lambda f: f.columns("batches"),
        "color",
        [theme.colour(1) if number % 23 == 22 else theme.colour(4) for number in range(80, 200)],
    ),
    "batch": Case(BatchTiles, lambda f: f.batch(0), "text", ["8"] * 8),
    "timeline": Case(
        StepTimeline, lambda f: f.columns("timeline"), "lane", ["input", "python", *DEVICES]
    ),
    "traffic": Case(
        Traffic,
        lambda f: traffic_row(f.columns("reductions"), 0),
        "phase",
        [*["reduce-scatter"] * 8, *["all-gather"] * 8],
    ),
}


@pytest.fixture(scope="module")
def folds() -> Folds:
    folds = Folds()
    folds.add(whole_run(200))
    return folds


def outside_of_sources(chart: Chart[Any]) -> list[tuple[str, str]]:
    models = sorted(chart.root.references(), key=lambda model: model.id)
    return [
        (model.id, str(model.properties_with_values(include_defaults=False)))
        for model in models
        if type(model).__name__ not in {"ColumnDataSource", "Selection"}
    ]


def embedded(chart: Chart[Any], column: str) -> list[list[str]]:
    """Returns all columns of a name in the sources that a page receives."""
    return list(_columns_in(json.loads(json.dumps(json_item(chart.root))), column))


def _columns_in(part: Any, column: str) -> Iterator[list[str]]:
    if isinstance(part, dict) and part.get("name") == "ColumnDataSource" and "attributes" in part:
        data = dict(part["attributes"]["data"]["entries"])
        yield from [data[column]] if column in data else []
    for one in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _columns_in(one, column)


def what_to_do(chart: Chart[Any]) -> list[str]:
    """Returns what an empty chart says."""
    labels = chart.root.select({"type": LabelSet})
    return [text for one in labels if one.source.tags for text in one.source.data["text"]]


@pytest.mark.slow
def test_only_the_data_of_sources_changes(folds: Folds) -> None:
    for name, case in CHARTS.items():
        chart = case.shown(Folds())
        before = outside_of_sources(chart)
        assert list(chart.source.data[case.column]) == [], name
        assert [] in embedded(chart, case.column), name
        assert what_to_do(chart), name
        chart.update(case.columns(folds))
        assert not (case.texts and what_to_do(chart)), name
        assert list(chart.source.data[case.column]) == case.texts, name
        assert outside_of_sources(chart) == before, name
        assert case.texts in embedded(chart, case.column), name


def test_a_batch_has_a_tile_for_each_example_and_free_places(folds: Folds) -> None:
    chart = BatchTiles()
    chart.update(folds.batch(0))
    data = _named(chart.root, "examples").data
    assert len(data["left"]) == 64
    assert data["index"] == [str(index) for index in there(there(folds.batch(0))["index"])]
    assert len(_named(chart.root, "free").data["left"]) == 0
    chart.update(folds.batch(1_437 // 64))
    assert chart.source.data["text"] == ["8"] * 3 + ["5 of 8"] + ["0 of 8"] * 4
    assert chart.source.data["state"] == [""] * 4 + ["empty"] * 4
    rows = _named(chart.root, "batch_rows").data
    assert rows["text"] == ["29 examples", *chart.source.data["text"]]
    assert rows["style"] == ["normal"] * 4 + ["bold"] * 5
    free = _named(chart.root, "free").data  # three places of CPU:3, and four whole rows
    wide = [right - left > 5 for left, right in zip(free["left"], free["right"], strict=True)]
    assert wide == [False] * 3 + [True] * 4
    assert _named(chart.root, "strip").data["size"].tolist() == [8, 8, 8, 5, 0, 0, 0, 0]
    assert size_text(512, 512, 256) == "512, 256 drawn"


def test_tiles_show_the_examples_own_pixels() -> None:
    pictures = np.arange(4 * 8 * 8, dtype=np.uint8).reshape(4, 8, 8)
    grid = fit(2, 2)
    replica, place = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    picture, _, _ = sheet(pictures, grid, replica, place)
    upright = picture[::-1].view(np.uint8).reshape(*picture.shape, 4)
    assert np.array_equal(upright[:8, :8, 0], pictures[0])
    assert (upright[:8, :8, 3] == 255).all()
    left = 9 if grid.columns == 2 else 0
    top = 0 if grid.columns == 2 else 9
    assert np.array_equal(upright[top : top + 8, left : left + 8, 2], pictures[1])
    block = round(grid.pitch * 9)
    assert np.array_equal(upright[block : block + 8, :8, 1], pictures[2])


def test_large_pictures_are_shrunk_by_means() -> None:
    pictures = np.full((64, 64, 64), 100, np.uint8)
    grid = fit(8, 64)
    picture, _, _ = sheet(
        np.repeat(pictures, 8, 0), grid, np.repeat(np.arange(8), 64), np.tile(np.arange(64), 8)
    )
    assert picture.size < 600_000
    assert set(np.unique(picture.view(np.uint8))) <= {0, 100, 255}


def test_numbers_become_grey_squares() -> None:
    pictures = as_pictures(np.array([[0, 1, 2], [np.nan, 4, 4]], np.float32))
    assert pictures.shape == (2, 2, 2)
    assert pictures[0].ravel().tolist() == [0, 63, 127, 0]
    assert pictures[1].ravel().tolist() == [0, 255, 255, 0]


def test_grids_use_the_room_they_have() -> None:
    assert fit(8, 8).lines == 1
    assert fit(1, 1) == fit(1, 1)
    assert fit(8, 64).lines > 1
    for replicas in (1, 3, 8, 64):
        for share in (1, 7, 64, 256):
            grid = fit(replicas, share)
            assert grid.columns * grid.lines >= share > grid.columns * (grid.lines - 1)


def test_device_strips_are_blank_where_nothing_was_watched() -> None:
    columns: DeviceColumns = {
        **Devices().columns(),
        "start_s": np.array([0.0, 3.0]),
        "end_s": np.array([1.0, 4.0]),
        "busy": np.array([[0.5], [1.0]]),
    }
    shares = resample(columns, np.linspace(0, 4, 5))
    assert shares[:, 0] == pytest.approx([0.5, np.nan, np.nan, 1.0], nan_ok=True)
    columns = {**columns, "start_s": np.array([0.0, 1.0]), "busy": np.array([[0.0], [1.0]])}
    shares = resample(columns, np.array([0.0, 2.0, 4.0]))  # cells that cover windows in part
    assert shares[:, 0] == pytest.approx([0.5, 1.0])


def test_device_cells_are_wider_than_pauses_between_windows() -> None:
    starts = np.arange(0, 20, 0.2)
    columns: DeviceColumns = {
        **Devices().columns(),
        "device": ["CPU:0"],
        "start_s": starts,
        "end_s": starts + 0.1,
        "busy": np.full((100, 1), 0.75),
        "now": np.array([0.75]),
        "mean": np.array([0.75]),
        "computes": np.array([np.nan]),
        "simulated": True,
    }
    chart = DeviceShares()
    chart.update(columns)
    (image,) = _named(chart.root, "device_strips").data["image"]
    assert image.shape[1] == 50
    assert image[1] == pytest.approx(0.75)
    colours = {mapper.low_color for mapper in chart.root.select({"type": LinearColorMapper})}
    assert colours == {shades(colour(0), 64)[0]}  # idle: what waits is pale, as in the bars


def test_the_newest_window_is_marked_until_the_run_ends() -> None:
    columns: DeviceColumns = {
        **Devices().columns(),
        "device": ["CPU:0", "CPU:1"],
        "start_s": np.array([0.0]),
        "end_s": np.array([1.0]),
        "busy": np.array([[0.5, 1.0]]),
        "now": np.array([0.0, 1.0]),
        "mean": np.array([0.5, 0.25]),
        "computes": np.full(2, np.nan),
    }
    chart = DeviceShares()
    chart.update(columns)
    assert chart.source.data["mean"].tolist() == [0.5, 0.25]
    assert chart.source.data["text"] == ["in flight 50 %", "in flight 25 %"]
    assert chart.source.data["now"].tolist() == [0.0, 1.0]
    chart.update({**columns, "ended": True})
    assert np.isnan(chart.source.data["now"]).all()
    (scale,) = _named(chart.root, "device_scale").data["image"]
    assert scale[0, [0, -1]].tolist() == [0.0, 1.0]


def test_loss_and_other_metrics_are_apart(folds: Folds) -> None:
    columns: MetricColumns = {**folds.columns("metrics"), "name": ["Validation Loss"]}
    loss, others = loss_lines(), other_lines()
    loss.update(columns)
    others.update(columns)
    assert loss.source.data["name"] == ["Validation Loss"]
    assert others.source.data["name"] == []


def test_steps_beyond_those_of_browsers_are_drawn() -> None:
    folds = Folds()
    folds.add([Metric(time_ns=1, step=2**63 - 1, values={"loss": 1.0})])
    chart = loss_lines()
    chart.update(folds.columns("metrics"))
    assert '"dtype": "float64"' in json.dumps(embedded(chart, "step"))
    assert chart.source.data["step"][0].tolist() == [2.0**63]


def test_long_runs_show_means_between_their_extremes() -> None:
    folds = Folds()
    folds.add(
        [
            Metric(time_ns=step, step=step, values={"loss": float(step % 2), "rate": step / 2_000})
            for step in range(2_000)
        ]
    )
    loss, others = loss_lines(), other_lines()
    loss.update(folds.columns("metrics"))
    others.update(folds.columns("metrics"))
    (value,), (outline,) = loss.source.data["value"], loss.bands.data["value"]
    assert set(value) == {0.5}
    assert (set(outline[: len(value)]), set(outline[len(value) :])) == ({1.0}, {0.0})
    assert others.source.data["last"] == ["0.9995"]
    (place,) = others.source.data["place"]
    assert place[[0, -1]].tolist() == [-0.35, 0.35]


def test_names_that_look_like_tex_are_only_text(folds: Folds) -> None:
    columns: MetricColumns = {**folds.columns("metrics"), "name": ["$$loss$$"]}
    chart = loss_lines()
    chart.update(columns)
    assert "$$" not in chart.source.data["name"][0]


def test_reductions_are_written_for_people(folds: Folds) -> None:
    chart = ReductionBars()
    assert chart.root.xaxis[0].ticker.desired_num_ticks <= 4  # bytes have room on narrow pages
    chart.update(folds.columns("reductions"))
    data = chart.source.data
    assert data["kind"] == ["all-reduce", "reduce MEAN"]
    assert data["each"] == ["9.64 kB", "4 B"]
    assert data["total_text"] == ["1.93 MB", "800 B"]
    assert data["where"] == ["inside train_step", "from Python"]
    assert data["time"] == ["not timed", "50 µs"]
    assert data["dtype"] == ["float32", "float32"]
    assert data["how"] == ["train.py:31", "to one device"]
    lines = ("jit(step)/shard_map/psum at train.py:31", "jit(step)/pmax at b.py:2")
    columns: ReductionColumns = {**folds.columns("reductions"), "how": [lines, ()]}
    chart.update({**columns, "at_least": [True, False]})
    assert chart.source.data["how"] == ["psum at train.py:31 and 1 other", "not known"]
    assert chart.source.data["how_full"] == ["\n".join(lines), ""]
    assert chart.source.data["count_text"] == ["≥ 200", "200"]


def test_how_texts() -> None:
    for how, text in (
        (["to one device"], "to one device"),
        (["train.py:31"], "train.py:31"),
        (["jit(f)/psum"], "psum"),
        ([f"jit(f)/psum at {'a' * 60}.py:7"], f"…{'a' * 34}.py:7"),
        (["jit(f)/transpose(jvp(a/add)) at t.py:1"], "add at t.py:1"),
        (["jit(f)/transpose(jvp(add)) at t.py:1"], "add at t.py:1"),
        (["a/psum at t.py:1", "b/psum at t.py:1"], "psum at t.py:1"),
        (["psum at t.py:1", "psum at t.py:2", "psum at t.py:3"], "psum at t.py:1 and 2 others"),
    ):
        assert how_text(how) == text


def test_bars_of_one_name_get_details_that_differ(folds: Folds) -> None:
    same: dict[str, Any] = {"kind": ["all-reduce"] * 2, "where": ["inside step"] * 2}
    arrays = ("8 arrays and 1 number", "1 number")
    cases: tuple[tuple[dict[str, Any], list[str]], ...] = (
        ({"what": list(arrays)}, [f"all-reduce of {what}" for what in arrays]),
        ({"largest": ["like a", "like b"]}, ["all-reduce of 2, like a", "all-reduce of 2, like b"]),
        ({"how": [("ring",), ("tree",)]}, ["all-reduce of 2, ring", "all-reduce of 2, tree"]),
        ({}, ["all-reduce of 2, 9.64 kB", "all-reduce of 2, 4 B"]),
        (
            {"what": ["", ""], "where": ["inside f", "from Python"]},
            ["all-reduce, inside f", "all-reduce, from Python"],
        ),
    )
    columns: Any = {}
    for change, names in cases:
        columns = {
            **folds.columns("reductions"), **same, "what": ["2"] * 2, "largest": [""] * 2,
            "how": [()] * 2, **change,
        }  # fmt: skip
        chart = ReductionBars()
        chart.update(columns)
        assert _named(chart.root, "reduction_bars").data["name"] == names
    columns |= {"what": ["8 arrays", ""], "largest": ["like kernel", ""]}
    columns["values"] = [("float32[64,10] like kernel",), ()]
    chart.update(columns)
    assert chart.source.data["what"] == ["8 arrays, the largest like kernel", "\u2013"]
    assert chart.source.data["what_full"][0] == "float32[64,10] like kernel"


def test_placement_has_a_cell_for_each_variable_and_device(folds: Folds) -> None:
    chart = PlacementTable()
    chart.update(folds.columns("placement"))
    data = chart.source.data
    assert len(data["x"]) == (5 + 1) * 8
    averages = [place for place, name in enumerate(data["variable"]) if name == "averages"]
    assert [data["text"][place] for place in averages] == ["40 B"] + [""] * 7
    assert data["variable"][-1] == "total"
    assert data["text"][-1] == "9.64 kB"


def forty_variables() -> PlacementColumns:
    return {
        "name": [f"w{number}" for number in range(40)],
        "layout": ["replicated"] * 40,
        "shape": [[4]] * 40,
        "dtype": ["float32"] * 40,
        "bytes": np.full((40, 2), 16),
        "part": [[]] * 40,
        "device": ["a", "b"],
        "device_bytes": np.full(2, 640),
        "whole_bytes": np.full(2, 640),
        "devices": np.ones(2, np.int64),
        "mesh": {},
        "function": "",
        "divided": [],
    }


def test_many_variables_share_rows_that_can_be_read() -> None:
    chart = PlacementTable()
    chart.update(forty_variables())
    assert "16 others" in chart.source.data["variable"]
    assert chart.source.data["text"][-1] == "640 B"
    low = PlacementTable(height=260)
    low.update(forty_variables())
    assert list(dict.fromkeys(low.source.data["variable"])) == [
        *(f"w{number}" for number in range(12)),
        "28 others",
        "total",
    ]


def _named(root: Any, name: str) -> Any:
    return next(model for model in root.references() if model.name == name)
