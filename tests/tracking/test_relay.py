"""What a logger is told of a run's events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from distlab import events
from distlab.events import Event, Metric, RunEnd, Step
from distlab.tracking.logger import Logger, RunFacts
from distlab.tracking.relay import Relay
from tests.recording import samples

SECOND = 1_000_000_000


class Listener(Logger):
    """Keeps its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def start(self, run: RunFacts) -> None:
        self.calls.append(("start", run.name))

    def log_facts(self, facts: Mapping[str, str]) -> None:
        self.calls.append(("facts", dict(facts)))

    def log_scalars(self, step: int, values: Mapping[str, float], unix_ns: int) -> None:
        self.calls.append(("scalars", step, dict(values), unix_ns))

    def log_text(self, step: int, name: str, text: str, unix_ns: int) -> None:
        self.calls.append(("text", step, name, text))

    def log_images(self, step: int, images: Mapping[str, Any], unix_ns: int) -> None:
        self.calls.append(("images", step, {name: p.tolist() for name, p in images.items()}))

    def finish(self, status: str, message: str) -> None:
        self.calls.append(("finish", status, message))

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == kind]


def told(found: Sequence[Event], end: RunEnd | None = None) -> Listener:
    listener = Listener()
    relay = Relay(listener, None)
    for event in found:
        relay.add(event)
    relay.finish(end)
    return listener


def step(number: int, at: float) -> Step:
    ns = int(at * SECOND)
    return Step(time_ns=ns, step=number, program=0, strategy=2, dispatched_ns=ns, examples=10)


def begun() -> events.Run:
    device = events.Device(name="CPU:0", kind="cpu", platform="cpu", simulated=True)
    return events.Run(
        time_ns=5 * SECOND,
        name="a run",
        unix_ns=1_000 * SECOND,
        process=1,
        host="host",
        platform="cpu",
        devices=[device, device],
        versions={"jax": "0.10"},
    )


def sharding(sizes: list[int], at: float, *, dataset: int = 0, first: int = 0) -> events.Sharding:
    return events.Sharding(
        time_ns=int(at * SECOND),
        strategy=2,
        dataset=dataset,
        batch=0,
        epoch=0,
        sizes=sizes,
        nominal=2,
        indices=np.arange(first, first + sum(sizes), dtype="<i8").tobytes(),
        bytes=96,
        wait_ns=2_000_000,
        transfer_ns=4_000_000,
        policy="rebatch",
    )


def preview(pixels: np.ndarray, first: int = 0, dataset: int = 0) -> events.Preview:
    return events.Preview(
        time_ns=7,
        dataset=dataset,
        batch=None,
        epoch=0,
        indices=np.arange(first, first + len(pixels), dtype="<i8").tobytes(),
        form="image" if pixels.dtype == np.uint8 else "numbers",
        shape=list(pixels.shape[1:]),
        data=pixels.tobytes(),
        labels=[],
    )


def test_a_logger_starts_with_the_facts_and_ends_with_the_run() -> None:
    metric = Metric(time_ns=7 * SECOND, step=3, values={"loss": 0.5})
    calls = told([begun(), samples.strategy(), metric], samples.end()).calls
    facts = {
        "host": "host",
        "platform": "cpu",
        "devices": "2 cpu",
        "jax": "0.10",
        "strategy": "MirroredStrategy",
        "replicas": "1",
    }
    assert calls == [
        ("start", "a run"),
        ("facts", facts),
        ("scalars", 3, {"loss": 0.5}, 1_002 * SECOND),
        ("finish", "finished", ""),
    ]


def test_a_strategy_made_later_is_told_when_there_is_more_to_say() -> None:
    metric = Metric(time_ns=7 * SECOND, step=-1, values={"loss": 0.5})
    listener = told([begun(), metric, samples.strategy(), metric])
    first, second = (facts for (facts,) in listener.of("facts"))
    assert "strategy" not in first
    assert second["strategy"] == "MirroredStrategy"
    assert [number for number, *_ in listener.of("scalars")] == [0, 0]  # -1 is no step


def test_a_run_without_an_end_is_told_as_running() -> None:
    assert told([]).calls == [("start", ""), ("facts", {}), ("finish", "running", "")]


def test_speed_is_told_once_a_second_and_at_the_end() -> None:
    steps = [step(number, 10 + 0.25 * number) for number in range(7)]
    listener = told(steps)
    rates = [
        (last, values["distlab/steps_per_second"], values["distlab/examples_per_second"])
        for last, values, _ in listener.of("scalars")
    ]
    assert rates == [(3, 4.0, 40.0), (6, 6.0, 60.0)]


def test_waiting_for_input_is_the_mean_of_the_batches() -> None:
    listener = told([sharding([2, 2], 1.0), sharding([2, 2], 1.5), step(0, 1.5)])
    ((_, values, _),) = listener.of("scalars")
    assert (values["distlab/input_wait_ms"], values["distlab/transfer_ms"]) == (2.0, 4.0)


def test_busy_shares_have_the_devices_names() -> None:
    strategy = events.Strategy(
        time_ns=0, strategy=2, name="MirroredStrategy", devices=["CPU:0", "CPU:1"]
    )
    windows = [
        events.DeviceSample(
            time_ns=(at + 1) * SECOND // 10,
            strategy=2,
            start_ns=at * SECOND // 10,
            busy_ns=[SECOND // 10, SECOND // 40],
            memory_bytes=[10, 20],
            process_memory_bytes=500,
        )
        for at in range(2)
    ]
    ((_, values, _),) = told([strategy, *windows]).of("scalars")
    assert values == {
        "distlab/busy/CPU:0": 1.0,
        "distlab/busy/CPU:1": 0.25,
        "distlab/memory_bytes/CPU:0": 10,
        "distlab/memory_bytes/CPU:1": 20,
        "distlab/process_memory_bytes": 500,
    }


def test_a_replicas_part_of_a_batch_is_a_picture() -> None:
    pictures = np.arange(3 * 4, dtype=np.uint8).reshape(3, 2, 2)
    listener = told([step(4, 1), sharding([2, 1, 0], 2), preview(pictures), step(5, 2)])
    assert listener.of("images") == [
        (
            5,
            {
                "distlab/batch/replica 0": [[0, 1, 0, 4, 5], [2, 3, 0, 6, 7]],
                "distlab/batch/replica 1": [[8, 9], [10, 11]],
            },
        )
    ]


def test_events_between_a_batch_and_its_previews_cost_no_picture() -> None:
    pictures = np.arange(3 * 4, dtype=np.uint8).reshape(3, 2, 2)
    sample = events.DeviceSample(
        time_ns=2 * SECOND,
        strategy=2,
        start_ns=0,
        busy_ns=[0, 0, 0],
        memory_bytes=[0, 0, 0],
        process_memory_bytes=500,
    )
    between = [sharding([2, 1, 0], 2), sample, preview(pictures), sample, step(5, 2)]
    ((number, images),) = told(between).of("images")
    assert number == 5
    assert images["distlab/batch/replica 1"] == [[8, 9], [10, 11]]


def test_a_step_and_a_dataset_of_another_thread_cost_no_picture() -> None:
    pictures = np.arange(2 * 4, dtype=np.uint8).reshape(2, 2, 2)
    between = [
        *(sharding([1, 1], 2), step(4, 2), sharding([1, 1], 2, dataset=1), step(5, 2)),
        *(preview(pictures), step(6, 3), preview(pictures + 8, dataset=1), step(7, 3)),
    ]
    first, second = told(between).of("images")
    assert first[0] == 6
    assert first[1]["distlab/batch/replica 1"] == [[4, 5], [6, 7]]
    assert second[0] == 7
    assert second[1]["distlab/batch/replica 0"] == [[8, 9], [10, 11]]


def test_of_batches_that_wait_for_previews_eight_are_kept() -> None:
    picture = np.zeros((2, 2, 2), np.uint8)
    never = [sharding([1, 1], 20 * dataset, dataset=dataset) for dataset in range(20)]
    late: list[Event] = [preview(picture, dataset=dataset) for dataset in range(20)]
    assert len(told([*never, *late]).of("images")) == 8


def test_numbers_are_rows_of_greys() -> None:
    rows = np.array([[0.0, 1.0], [2.0, 4.0]], np.float32)
    ((_, images),) = told([sharding([1, 1], 2), preview(rows)]).of("images")
    corners = {name: np.array(p)[::8, ::8].tolist() for name, p in images.items()}
    assert corners == {
        "distlab/batch/replica 0": [[0, 63]],
        "distlab/batch/replica 1": [[127, 255]],
    }


def test_first_and_uneven_batches_and_one_each_10_s_are_drawn() -> None:
    picture = np.zeros((4, 4, 4), np.uint8)
    batches: list[Event] = [preview(picture)]
    for at, sizes in [(1, [2, 2]), (2, [2, 1]), (3, [2, 2]), (12, [2, 1]), (13, [2, 1])]:
        batches += [sharding(sizes, at), step(at, at)]
    assert [number for number, _ in told(batches).of("images")] == [1, 2, 12]


def test_a_dataset_for_each_epoch_is_not_drawn_each_time() -> None:
    picture = np.zeros((4, 4, 4), np.uint8)
    batches: list[Event] = []
    for dataset in range(100):
        batches += [sharding([2, 2], 1, dataset=dataset), preview(picture, dataset=dataset)]
    assert len(told(batches).of("images")) == 8


def test_advice_errors_programs_and_losses_are_texts() -> None:
    advice = events.Advice(
        time_ns=9,
        cause="waiting_input",
        subject="",
        text="It waits.",
        remedy="Prefetch.",
        evidence={},
        steps=[],
        page="",
        share=0.5,
    )
    error = events.Error(time_ns=9, where="run", type="ValueError", message="no")
    lost = events.Lost(time_ns=9, count=3, reason="The disk is full.")
    assert told([samples.compiled(), advice, error, lost]).of("text") == [
        (0, "distlab/programs", "`step` compiled in 0.00 s (new function)"),
        (0, "distlab/advice", "**waiting_input**: It waits. Prefetch."),
        (0, "distlab/errors", "`run` raised ValueError: no"),
        (0, "distlab/lost", "3 events: The disk is full."),
    ]


def test_every_kind_of_event_is_accepted() -> None:
    assert told(samples.one_of_each()).calls[-1] == ("finish", "running", "")


@pytest.mark.parametrize("form", [np.uint8, np.float32])
def test_batches_without_previews_have_no_pictures(form: type) -> None:
    nothing: np.ndarray = np.zeros((2, 0), form)
    assert told([sharding([1, 1], 2), preview(nothing)]).of("images") == []
    assert told([sharding([1, 1], 2)]).of("images") == []
