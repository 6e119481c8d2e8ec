"""The timeline of steps whose times are known."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.events import DeviceSample, Event, Step, StepReady, Strategy
from distlab.folds import Folds, TimelineColumns, window
from tests.folds.test_chunking import same
from tests.recording import samples
from tests.recording.samples import made
from tests.synthetic import START_NS, beginning, compiled, whole_run

MS = 1_000_000


def call(number: int, at_ms: float, *, took_ms: float = 1, strategy: int = 0) -> Step:
    time_ns = START_NS + round(at_ms * MS)
    return Step(
        time_ns=time_ns,
        step=number,
        program=0,
        strategy=strategy,
        dispatched_ns=time_ns + round(took_ms * MS),
        examples=64,
    )


def ready(number: int, *at_ms: float) -> StepReady:
    times = [START_NS + round(at * MS) for at in at_ms]
    return StepReady(
        time_ns=max(times), step=number, strategy=0, ready_ns=times, resolution_ns=1_000
    )


def sample(start_ms: float, end_ms: float, *busy_ms: float) -> DeviceSample:
    return made(
        DeviceSample,
        time_ns=START_NS + round(end_ms * MS),
        strategy=0,
        start_ns=START_NS + round(start_ms * MS),
        busy_ns=[round(busy * MS) for busy in busy_ms],
    )


def timeline_of(*events: Event, devices: int = 2) -> TimelineColumns:
    folds = Folds()
    folds.add([*beginning(devices), *events])
    return folds.columns("timeline")


def test_a_step_is_in_flight_from_its_call_until_it_is_ready() -> None:
    columns = timeline_of(call(0, 10), call(1, 12), ready(0, 20, 30), ready(1, 40, 41))
    assert columns["device"] == ["CPU:0", "CPU:1"]
    assert columns["step"].tolist() == [0, 1]
    assert columns["begin_s"] == pytest.approx([0.010, 0.012])
    assert columns["called_s"] == pytest.approx([0.011, 0.013])
    assert columns["ready_s"] == pytest.approx(np.array([[0.020, 0.030], [0.040, 0.041]]))
    # Step 1 is the oldest one in flight on each device when step 0 is ready there.
    assert columns["from_s"] == pytest.approx(np.array([[0.010, 0.010], [0.020, 0.030]]))


def test_a_step_that_compiles_is_in_flight_once_its_program_is_there() -> None:
    there = msgspec.structs.replace(compiled(2), time_ns=START_NS + 900 * MS)
    columns = timeline_of(there, call(0, 10, took_ms=895), call(1, 910), ready(0, 908, 909))
    assert columns["begin_s"] == pytest.approx([0.010, 0.910])
    assert columns["from_s"][0] == pytest.approx([0.900, 0.900])


def test_steps_that_were_not_watched_have_a_call_and_no_end() -> None:
    columns = timeline_of(call(0, 10), call(1, 12), ready(1, 20, 30))
    assert np.isnan(columns["ready_s"][0]).all()
    assert np.isnan(columns["from_s"][0]).all()
    assert columns["from_s"][1] == pytest.approx([0.012, 0.012])


def test_shares_are_those_of_the_watched_time_alone() -> None:
    columns = timeline_of(call(0, 0), sample(100, 200, 50, 100), call(1, 390))
    middles = columns["cell_s"] * (np.arange(len(columns["watched"])) + 0.5)
    inside = (middles > 0.101) & (middles < 0.199)
    outside = (middles < 0.099) | (middles > 0.201)
    assert columns["busy"][inside] == pytest.approx(
        np.broadcast_to([0.5, 1.0], (int(inside.sum()), 2))
    )
    assert np.isnan(columns["busy"][outside]).all()
    assert columns["watched"].sum() * columns["cell_s"] == pytest.approx(0.1)
    assert columns["watched_spans"] == pytest.approx(np.array([[0.1, 0.2]]))


def test_watched_and_idle_is_zero_and_not_unknown() -> None:
    columns = timeline_of(call(0, 0), sample(10, 20, 0, 0), call(1, 100))
    cell = int(0.015 / columns["cell_s"])
    assert columns["busy"][cell].tolist() == [0, 0]


def test_windows_that_overlap_count_once() -> None:
    columns = timeline_of(sample(0, 100, 100, 0), sample(50, 150, 100, 0))
    assert columns["watched"].sum() * columns["cell_s"] == pytest.approx(0.15)
    assert np.nanmax(columns["busy"]) <= 1
    assert columns["watched_spans"] == pytest.approx(np.array([[0, 0.15]]))


def test_waiting_for_input_ends_where_the_transfer_begins() -> None:
    batch = msgspec.structs.replace(
        samples.sharding(7),
        time_ns=START_NS + 50 * MS,
        strategy=0,
        wait_ns=30 * MS,
        transfer_ns=10 * MS,
    )
    columns = timeline_of(batch, call(0, 100))
    assert columns["waits"] == pytest.approx(np.array([[0.010, 0.040, 0.050]]))
    assert columns["batch"].tolist() == [7]
    assert columns["waited"].sum() * columns["cell_s"] == pytest.approx(0.030)


@pytest.mark.parametrize("seconds", [1, 36_000])
def test_any_length_of_run_has_a_bounded_overview(seconds: int) -> None:
    count = 5_000
    calls = [call(n, n * seconds * 1_000 / count, took_ms=0) for n in range(count)]
    columns = timeline_of(*calls)
    assert 256 <= len(columns["steps"]) <= 512
    assert columns["steps"].sum() == columns["step_count"] == count
    assert len(columns["step"]) == 2_000
    assert columns["step"][0] == 3_000
    assert columns["exact_from_s"] == pytest.approx((calls[2_999].time_ns - START_NS) / 1e9)


def test_calls_longer_than_a_cell_fill_the_cells_that_they_cover() -> None:
    columns = timeline_of(call(0, 100, took_ms=300), call(1, 900, took_ms=0))
    edges = columns["cell_s"] * np.arange(len(columns["calls"]) + 1)
    inside = (edges[:-1] > 0.1) & (edges[1:] < 0.4)
    assert columns["calls"][inside] == pytest.approx(np.ones(int(inside.sum())))
    assert columns["calls"].sum() * columns["cell_s"] == pytest.approx(0.3)


@pytest.mark.parametrize(("devices", "rows", "group"), [(64, 64, 1), (65, 33, 2), (1_024, 64, 16)])
def test_many_devices_share_rows(devices: int, rows: int, group: int) -> None:
    busy = [float(device % group == 0) for device in range(devices)]
    late = [20.0] * (devices - 1) + [25.0]
    columns = timeline_of(call(0, 0), ready(0, *late), sample(0, 1, *busy), devices=devices)
    assert (len(columns["device"]), columns["devices"], columns["group"]) == (rows, devices, group)
    assert columns["busy"].shape[1] == columns["ready_s"].shape[1] == rows
    assert columns["busy"][0, 0] == pytest.approx(1 / group)
    assert columns["ready_s"][0, -1] == pytest.approx(0.025)
    assert columns["ready_s"][0, 0] == pytest.approx(0.020)
    if group > 1:
        assert columns["device"][0] == f"CPU:0 to CPU:{group - 1}"


def test_a_new_run_begins_at_zero_again() -> None:
    folds = Folds()
    folds.add(whole_run(40))
    later = START_NS + 10**12
    folds.add([msgspec.structs.replace(beginning(2)[0], time_ns=later)])
    folds.add([msgspec.structs.replace(call(0, 0), time_ns=later + MS, dispatched_ns=later + MS)])
    columns = folds.columns("timeline")
    assert columns["step_count"] == 1
    assert columns["now_s"] == pytest.approx(0.001)
    assert columns["device"] == []


def test_the_rows_are_those_of_the_strategy_watched_last() -> None:
    second = Strategy(time_ns=START_NS, strategy=1, name="OneDeviceStrategy", devices=["CPU:5"])
    late = msgspec.structs.replace(sample(20, 30, 5), strategy=1)
    columns = timeline_of(call(0, 0), ready(0, 5, 6), sample(0, 10, 5, 5), second, late)
    assert columns["device"] == ["CPU:5"]
    assert columns["ready_s"].shape == (1, 1)
    assert np.isnan(columns["ready_s"]).all()


def test_a_part_of_a_run_has_cells_of_its_own() -> None:
    events = whole_run(2_000)
    columns = window(events, START_NS, 10.0, 11.0, cells=100)
    assert columns["cell_start_s"] == 10
    assert columns["cell_s"] == pytest.approx(0.01)
    assert len(columns["steps"]) == 100
    assert columns["steps"].sum() == 100  # one each 10 ms
    assert np.isfinite(columns["busy"]).all()
    whole = Folds()
    whole.add(events)
    near = whole.columns("timeline")
    here = slice(*np.searchsorted(near["step"], [1_000, 1_050]))
    there = slice(*np.searchsorted(columns["step"], [1_000, 1_050]))
    assert same(near["ready_s"][here], columns["ready_s"][there])
    assert columns["device"][0] == "CPU:0"


@pytest.mark.slow
@given(
    cuts=st.lists(st.integers(0, 1_800), max_size=6),
    stretch=st.sampled_from([1, 50, 100_000]),
)
@settings(max_examples=8, deadline=None)
def test_columns_do_not_depend_on_chunks_in_long_runs(cuts: list[int], stretch: int) -> None:
    events: list[Event] = [*beginning(3)]
    for number in range(600):
        at = number * 0.7 * stretch
        events += [call(number, at, took_ms=0.3 * stretch), ready(number, at + 1, at + 2, at + 3)]
        events.append(sample(at, at + 0.5 * stretch, *(0.1 * stretch * n for n in range(3))))
    whole, parts = Folds(), Folds()
    whole.add(events)
    for begin, end in itertools.pairwise([0, *sorted(cuts), len(events)]):
        parts.add(events[begin:end])
        parts.columns("timeline")
    assert same(whole.columns("timeline"), parts.columns("timeline"))
