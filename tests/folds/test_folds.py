"""The columns of each fold, of a run whose events are known."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest

from distlab.events import (
    Capture,
    DeviceSample,
    Error,
    Lost,
    Metric,
    Placement,
    Preview,
    Reduction,
    Run,
    RunEnd,
    Sharding,
    Step,
    Strategy,
)
from distlab.folds import (
    Batches,
    Devices,
    Folds,
    Header,
    Metrics,
    Placements,
    Reductions,
    Steps,
    part_of_batch,
)
from distlab.folds._previews import Previews
from tests.recording import samples
from tests.recording.samples import made
from tests.synthetic import (
    START_NS,
    STEP_NS,
    beginning,
    compiled,
    placed,
    sizes_of,
    steps,
    there,
    whole_run,
)


@pytest.fixture(scope="module")
def folds() -> Folds:
    folds = Folds()
    folds.add(whole_run(200))
    return folds


def step(number: int, time_ns: int, examples: int = 64, program: int = 0) -> Step:
    return Step(
        time_ns=time_ns,
        step=number,
        program=program,
        strategy=0,
        dispatched_ns=time_ns + 1,
        examples=examples,
    )


def test_header_names_run_strategy_and_devices(folds: Folds) -> None:
    header = folds.columns("header")
    assert header["name"] == "made-up"
    assert header["strategy"] == "MirroredStrategy"
    assert header["replicas"] == [f"CPU:{replica}" for replica in range(8)]
    assert header["simulated"] is True
    assert header["status"] == "finished"


def test_header_counts_errors_and_what_was_not_recorded() -> None:
    fold = Header()
    fold.add(
        [
            Error(time_ns=1, where="run", type="ValueError", message="no"),
            Lost(time_ns=2, count=3, reason="disk full"),
            Lost(time_ns=3, count=4, reason="disk full"),
        ]
    )
    columns = fold.columns()
    assert columns["errors"] == ["run: ValueError: no"]
    assert columns["not_recorded"] == 7
    assert columns["not_recorded_reasons"] == ["disk full"]


def test_a_new_run_takes_the_place_of_the_one_before() -> None:
    folds = Folds()
    folds.add([*whole_run(40), made(Capture)])
    run = beginning(total_steps=10, name="second")[0]
    folds.add([msgspec.structs.replace(run, time_ns=START_NS + 10**12)])
    assert folds.columns("header")["name"] == "second"
    assert folds.columns("header")["status"] == ""
    assert folds.columns("steps")["steps"] == 0
    assert folds.columns("steps")["progress"] == 0
    assert set(folds.columns("programs")["steps"]) == {0}
    assert folds.columns("devices")["watched"] == 0
    assert folds.columns("captures")["numbers"] == []


def test_metrics_keep_every_logged_value(folds: Folds) -> None:
    metrics = folds.columns("metrics")
    assert metrics["name"] == ["loss"]
    assert metrics["step"][0].tolist() == list(range(200))
    assert metrics["last"][0] == metrics["value"][0][-1]
    assert metrics["value"][0][0] > 2 > 0.7 > metrics["last"][0]


def test_metrics_count_what_was_not_finite() -> None:
    fold = Metrics()
    fold.add([Metric(time_ns=1, step=0, values={"loss": float("nan")})])
    fold.add([Metric(time_ns=2, step=1, values={"loss": 0.5, "norm": float("inf")})])
    columns = fold.columns()
    assert dict(zip(columns["name"], columns["not_finite"], strict=True)) == {"loss": 1, "norm": 1}


def test_loss_and_accuracy_are_kept_whatever_was_logged_before() -> None:
    fold = Metrics()
    norms = {f"norm/layer{n}": float(n) for n in range(70)}
    parts = {f"loss/head{n}": float(n) for n in range(70)}
    fold.add([Metric(time_ns=step, step=step, values=norms | parts) for step in range(3)])
    fold.add([Metric(time_ns=9, step=9, values={"loss": 0.5, "val_acc": 0.7, "accuracy": 0.75})])
    columns = fold.columns()
    assert columns["value"][columns["name"].index("loss")].tolist() == [0.5]
    curves = Counter(name.partition("/")[0] for name in columns["name"])
    assert curves == {"norm": 64, "loss": 65, "accuracy": 1, "val_acc": 1}
    kept = {f"norm/layer{n}": float(n) for n in range(64, 70)}
    assert columns["without_curve"] == kept | {f"loss/head{n}": float(n) for n in range(64, 70)}
    assert columns["values_left_out"] == 0


def test_names_of_metrics_are_bounded_and_the_rest_counted() -> None:
    fold = Metrics()
    many = {f"m{n}": float(n) for n in range(11_000)}
    fold.add([Metric(time_ns=step, step=step, values=many) for step in range(2)])
    columns = fold.columns()
    assert (len(columns["name"]), len(columns["without_curve"])) == (64, 10_000)
    assert columns["values_left_out"] == 2 * (11_000 - 10_064)


def test_rates_come_from_the_times_of_the_steps(folds: Folds) -> None:
    steps = folds.columns("steps")
    assert steps["steps"] == 200
    assert steps["progress"] == 1
    assert steps["mean_rate"] == pytest.approx(1e9 / STEP_NS)
    assert steps["rate"] == pytest.approx(1e9 / STEP_NS, rel=0.05)
    assert steps["eta_s"] == 0
    assert steps["steps_per_s"].sum() * steps["bin_s"] <= 200


def test_eta_is_what_is_left_at_the_present_rate() -> None:
    fold = Steps()
    fold.add(beginning(total_steps=1_000)[:1])
    fold.add([step(number, START_NS + number * STEP_NS) for number in range(500)])
    columns = fold.columns()
    assert columns["progress"] == 0.5
    assert columns["eta_s"] == pytest.approx(5, rel=0.05)


def test_bins_widen_instead_of_growing() -> None:
    fold = Steps()
    fold.add([step(number, START_NS + number * 10**9) for number in range(5_000)])
    columns = fold.columns()
    assert len(columns["time_s"]) <= 480
    assert columns["steps_per_s"] == pytest.approx(np.ones(len(columns["time_s"])), abs=0.1)
    assert columns["steps"] == 5_000


def test_rates_need_two_steps_however_slow() -> None:
    fold = Steps()
    fold.add([step(0, START_NS)])
    columns = fold.columns()
    assert (columns["rate"], columns["mean_rate"], columns["eta_s"]) == (None, None, None)
    fold.add([step(number, START_NS + number * 10 * 10**9) for number in range(1, 12)])
    assert fold.columns()["rate"] == pytest.approx(0.1, rel=0.05)
    assert fold.columns()["steps_per_s"].max() < 0.3  # no spike for each step


def test_a_batch_shows_sizes_indices_and_pictures(folds: Folds) -> None:
    batch = there(folds.batch(0))
    assert batch["size"] == [8] * 8
    assert batch["replica"] == [f"CPU:{replica}" for replica in range(8)]
    assert batch["pixels"].shape == (64, 8, 8)
    assert batch["form"] == "image"
    assert batch["known"].all()
    assert batch["label"] == [str(index % 10) for index in there(batch["index"])]


def test_pictures_of_the_first_epoch_serve_the_next(folds: Folds) -> None:
    batch = there(folds.batch(30))
    assert batch["epoch"] == 1
    assert batch["known"].all()


def test_partial_batches_are_uneven(folds: Folds) -> None:
    columns = folds.columns("batches")
    last_of_epoch = 1_437 // 64
    assert columns["examples"][last_of_epoch] == 1_437 % 64
    assert columns["uneven"][last_of_epoch]
    assert there(folds.batch(last_of_epoch))["size"] == sizes_of(1_437 % 64, 64, 8)


def test_the_newest_batch_is_given_when_none_is_asked_for(folds: Folds) -> None:
    assert there(folds.batch())["number"] == 199
    assert there(folds.batch(10_000))["number"] == 199
    assert Folds().batch() is None


def test_old_even_batches_are_forgotten_first() -> None:
    fold = Batches(most_bytes=40_000)
    fold.add([event for event in whole_run(200) if isinstance(event, Sharding | Strategy)])
    columns = fold.columns()
    assert columns["count"] == 200
    assert columns["forgotten"] == 200 - len(columns["number"])
    assert set(range(22, 200, 23)) <= set(columns["number"].tolist())
    absent = next(number for number in range(200) if number not in columns["number"])
    assert there(fold.detail(absent))["number"] < absent


def test_sources_without_positions_are_previewed_by_batch() -> None:
    previews = Previews()
    numbers = np.arange(6, dtype="<f4").reshape(3, 2)
    previews.add(
        made(
            Preview,
            dataset=1,
            batch=4,
            indices=np.arange(3, dtype="<i8").tobytes(),
            form="numbers",
            shape=[2],
            data=numbers.tobytes(),
            labels=[],
        )
    )
    found = previews.find(1, 4, 0, None, 5)
    assert found.form == "numbers"
    assert found.known.tolist() == [True] * 3 + [False] * 2
    assert found.pixels[:3].tolist() == numbers.tolist()
    assert previews.find(1, 5, 0, None, 5).form == ""


def test_previews_beyond_the_limit_are_left_out() -> None:
    sheets = [event for event in whole_run(3) if isinstance(event, Preview)]
    previews = Previews(most_bytes=2 * len(sheets[0].data))
    for sheet in sheets:
        previews.add(sheet)
    found = [
        previews.find(0, number, 0, np.frombuffer(sheet.indices, "<i8").tolist(), 64)
        for number, sheet in enumerate(sheets)
    ]
    assert [pictures.known.sum() for pictures in found] == [64, 64, 0]


def test_busy_shares_are_busy_time_over_watched_time(folds: Folds) -> None:
    devices = folds.columns("devices")
    assert devices["device"] == [f"CPU:{replica}" for replica in range(8)]
    assert devices["busy"].shape == (40, 8)
    expected = 0.55 + 0.3 * np.sin(199 / 40 + np.arange(8))
    assert devices["now"] == pytest.approx(expected, abs=1e-6)
    assert devices["memory"] is None
    assert devices["simulated"] is True
    assert devices["process_bytes"][-1] == 400_000_000 + 199 * 10_000


def test_merged_windows_keep_their_mean() -> None:
    folds = Folds()
    folds.add(beginning(2))
    window = 10_000_000
    for number in range(2_000):
        start = START_NS + number * window
        folds.add(
            [
                made(
                    DeviceSample,
                    time_ns=start + window,
                    strategy=0,
                    start_ns=start,
                    busy_ns=[window * (number % 2), window // 4],
                    memory_bytes=[5, 6],
                )
            ]
        )
    devices = folds.columns("devices")
    assert devices["watched"] == 2_000
    assert len(devices["busy"]) <= 512
    assert devices["busy"][:-1] == pytest.approx(
        np.array([[0.5, 0.25]] * (len(devices["busy"]) - 1))
    )
    assert devices["memory"] == [5, 6]


def test_mean_is_over_all_time_watched_and_end_is_known() -> None:
    folds = Folds()
    folds.add(beginning(2))
    second = 10**9
    for begin, end, busy in ((0, 1, [1, 0]), (2, 5, [0, 3])):
        folds.add(
            [
                made(
                    DeviceSample,
                    time_ns=START_NS + end * second,
                    strategy=0,
                    start_ns=START_NS + begin * second,
                    busy_ns=[share * second for share in busy],
                )
            ]
        )
    devices = folds.columns("devices")
    assert devices["mean"] == pytest.approx([0.25, 0.75])
    assert devices["now"] == pytest.approx([0, 1])
    assert not devices["ended"]
    folds.add([RunEnd(time_ns=START_NS + 6 * second, status="finished")])
    assert folds.columns("devices")["ended"]
    assert Devices().columns()["mean"].tolist() == []


def test_collectives_inside_count_with_the_steps(folds: Folds) -> None:
    columns = folds.columns("reductions")
    inside = columns["inside"].index(True)
    assert columns["where"][inside] == "inside train_step"
    assert columns["kind"][inside] == "all-reduce"
    assert columns["count"][inside] == 200
    assert columns["total_bytes"][inside] == 200 * 9_640
    python = columns["inside"].index(False)
    assert columns["kind"][python] == "reduce MEAN"
    assert columns["count"][python] == 200
    assert columns["mean_ms"][python] == pytest.approx(0.05)


def test_a_scan_of_unknown_length_counts_at_least_once() -> None:
    fold = Reductions()
    program = compiled(2)
    (one,) = program.collectives
    loop = [msgspec.structs.replace(one, times_per_step=times) for times in (None, 5)]
    fold.add([step(0, 1), step(1, 2), msgspec.structs.replace(program, collectives=loop)])
    columns = fold.columns()
    assert columns["count"] == [10, 2]
    assert columns["at_least"] == [False, True]


def test_programs_have_a_row_by_function_once_a_step_ran() -> None:
    fold = Reductions()
    used = compiled(8)
    fold.add([msgspec.structs.replace(used, program=7, function="earlier"), used])
    fold.add([msgspec.structs.replace(used, program=1)])  # the function for other shapes
    assert fold.columns()["where"] == []
    fold.add([step(0, 1), step(1, 2), step(2, 3, program=1)])
    assert fold.columns()["where"] == [f"inside {used.function}"]
    assert fold.columns()["count"] == [3]


def test_a_reduction_of_full_and_ragged_programs_is_one_row() -> None:
    fold = Reductions()
    full = compiled(8)
    (whole,) = full.collectives
    part = msgspec.structs.replace(whole, source="train.py:80", operands=1)
    ragged = msgspec.structs.replace(full, program=1, mode="ragged", collectives=[part])
    fold.add([ragged, step(0, 1), step(1, 2, program=1), full, step(2, 3)])
    columns = fold.columns()
    assert columns["count"] == [3]
    assert columns["how"] == [("train.py:31",)]


def test_equal_reductions_on_two_lines_share_a_row() -> None:
    fold = Reductions()
    program = compiled(8)
    (first,) = program.collectives
    second = msgspec.structs.replace(first, source="train.py:32")
    fold.add([msgspec.structs.replace(program, collectives=[first, second]), step(0, 1)])
    columns = fold.columns()
    assert columns["count"] == [2]
    assert columns["how"] == [("train.py:31", "train.py:32")]


def test_other_types_or_sizes_are_rows_of_their_own() -> None:
    fold = Reductions()
    program = compiled(8)
    (first,) = program.collectives
    others = [
        msgspec.structs.replace(first, dtype="bf16"),
        msgspec.structs.replace(first, operand_bytes=8),
        msgspec.structs.replace(first, kind="all-gather"),
    ]
    fold.add([msgspec.structs.replace(program, collectives=[first, *others]), step(0, 1)])
    assert fold.columns()["count"] == [1] * 4


def test_gathers_and_reductions_are_apart() -> None:
    fold = Reductions()
    (reduction,) = (one for one in samples.one_of_each() if isinstance(one, Reduction))
    for verb, op in (("reduce", "SUM"), ("gather", "")):
        fold.add([msgspec.structs.replace(reduction, verb=verb, op=op)])
    assert sorted(fold.columns()["kind"]) == ["gather", "reduce SUM"]


def test_placement_is_a_table_of_variables_and_devices(folds: Folds) -> None:
    placement = folds.columns("placement")
    assert placement["name"][0] == "dense/kernel"
    assert placement["bytes"].shape == (5, 8)
    averages = placement["name"].index("averages")
    assert placement["bytes"][averages].tolist() == [40] + [0] * 7
    total = 4 * (64 * 32 + 32 + 32 * 10 + 10)
    assert placement["device_bytes"].tolist() == [total + 40] + [total] * 7


def test_parts_of_variables_are_together_by_parameter_server() -> None:
    def placed(array: int, name: str, server: int | None, size: int) -> Placement:
        return msgspec.structs.replace(
            samples.placement(array),
            name=name,
            layout="single",
            shape=[size // 4],
            devices=["CPU:3"],  # two servers may share a device
            bytes_per_device=[size],
            server=server,
        )

    fold = Placements()
    fold.add(
        [
            placed(0, "bias", 1, 40),
            *(placed(1 + n, f"table/part_{n}", (2 + n) % 3, 24) for n in range(11)),
            placed(12, "kernel", 1, 80),
            placed(13, "own/part_1", None, 8),
        ]
    )
    columns = fold.columns()
    assert columns["device"] == ["CPU:3", "server 0", "server 1", "server 2"]
    parts = [f"table/part_{n}" for n in range(11)]
    assert columns["name"] == [*parts, "kernel", "bias", "own/part_1"]
    assert columns["bytes"][:2].tolist() == [[0, 0, 0, 24], [0, 24, 0, 0]]
    assert columns["device_bytes"].tolist() == [8, 4 * 24, 3 * 24 + 120, 4 * 24]


def test_freed_variables_leave_the_table() -> None:
    fold = Placements()
    variable = placed(7, "w", [4], ["CPU:0", "CPU:1"])
    fold.add([variable])
    fold.add([msgspec.structs.replace(variable, action="free")])
    columns = fold.columns()
    assert columns["name"] == []
    assert columns["device_bytes"].tolist() == [0, 0]


def test_times_before_the_run_count_as_its_beginning() -> None:
    fold = Steps()
    run = beginning()[0]
    assert isinstance(run, Run)
    fold.add([run, step(0, START_NS - 10**9), step(1, START_NS + 10**9)])
    assert fold.columns()["steps"] == 2


def test_a_part_of_a_batch_has_the_examples_of_its_replicas() -> None:
    folds = Folds()
    folds.add([*beginning(64), *steps(1, replicas=64, batch=256, source=200)])
    whole = there(folds.batch(0))
    part = there(part_of_batch(whole, 40))
    assert part["replica"] == whole["replica"][32:]  # no more than there are
    assert part["size"] == whole["size"][32:] == [4] * 18 + [0] * 14
    assert part["whole_size"] == 200
    index = there(whole["index"])
    assert there(part["index"]).tolist() == index[128:200].tolist()
    assert len(part["label"]) == 72
    few = there(part_of_batch(whole, 10, 5))
    assert there(few["index"]).tolist() == index[40:60].tolist()
    assert part_of_batch(whole, 0, 64) is whole
    assert part_of_batch(None, 0) is None
