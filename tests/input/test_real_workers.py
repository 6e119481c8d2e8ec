"""Distributed datasets in real processes: what each worker receives, the end, and lost workers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.processes.cluster import Outcome, run_workers

READ = """
import logging
import os
import numpy as np
import distlab as dl

strategy = dl.MultiWorkerMirroredStrategy(
    communication_options=dl.experimental.CommunicationOptions(timeout_seconds=120),
    devices_per_worker=2,
)
Dataset = dl.data.Dataset

def with_policy(dataset, name):
    options = dl.data.Options()
    options.experimental_distribute.auto_shard_policy = dl.data.AutoShardPolicy[name]
    return dataset.with_options(options)

def local(value):
    return [np.asarray(part).tolist() for part in strategy.experimental_local_results(value)]

def steps(dataset, limit=99):
    found = []
    for value in dataset:
        found.append(local(value))
        if len(found) == limit:
            break
    return found

context = strategy.extended._strategy.input_context
show("context", [context.num_input_pipelines, context.input_pipeline_id])
show("chief", [strategy.extended.should_checkpoint, strategy.extended.should_save_summary])

numbers = strategy.experimental_distribute_dataset(Dataset.range(11).batch(8))
show("numbers", steps(numbers))
devices = [next(iter(part.devices())) for part in next(iter(numbers)).values]
show("processes", [device.process_index for device in devices])
show("spec", [str(spec.shape) for spec in numbers.element_spec.value_specs])

mapped = strategy.experimental_distribute_dataset(Dataset.range(40).map(lambda x: -x).batch(8))
show("broken off", [steps(mapped, 2), steps(mapped, 2)])
iterator = iter(mapped)
next(iterator)
position = iterator.state()
after = local(next(iterator))
iterator.restore(position)
show("restored", local(next(iterator)) == after)

said = []
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
logging.getLogger("distlab").addHandler(handler)
shuffled = strategy.experimental_distribute_dataset(Dataset.range(16).shuffle(16).batch(8))
show("said", said)
show("shuffled", [x for step in steps(shuffled) for part in step for x in part])

own = strategy.distribute_datasets_from_function(
    lambda context: Dataset.range(3 + 4 * context.input_pipeline_id).batch(2)
)
show("own", steps(own))
iterator = iter(own)
show("optional", [iterator.get_next_as_optional().has_value() for _ in range(4)])

if RANK == 0:
    for name in ("a", "b"):
        with open(name, "w") as file:
            file.write("1")
from distlab.processes import group
group.current().barrier("files")
lines = dl.data.TextLineDataset(["a"]).batch(4)
try:
    next(iter(strategy.experimental_distribute_dataset(with_policy(lines, "FILE"))))
except Exception as error:
    show("too few files", [type(error).__name__, str(error)])

def broken(x):
    if RANK == 1:
        raise ValueError("a bad example")
    return x

faulty = with_policy(Dataset.range(8).map(broken).batch(4), "OFF")
try:
    next(iter(strategy.experimental_distribute_dataset(faulty)))
except Exception as error:
    show("broken", [type(error).__name__, str(error)])
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    folder = tmp_path_factory.mktemp("workers")
    found = run_workers(f"import os; os.chdir({str(folder)!r})\n{READ}", workers=2)
    assert [outcome.code for outcome in found] == [0, 0]
    assert not any("raised" in outcome.shown for outcome in found)
    return found


def shown(outcomes: list[Outcome], name: str) -> list[Any]:
    return [outcome.shown[name] for outcome in outcomes]


def test_workers_have_input_contexts_and_the_first_is_chief(
    outcomes: list[Outcome],
) -> None:
    assert shown(outcomes, "context") == [[2, 0], [2, 1]]
    assert shown(outcomes, "chief") == [[True, True], [False, False]]


def test_workers_receive_parts_on_their_own_devices(
    outcomes: list[Outcome],
) -> None:
    assert shown(outcomes, "numbers") == [
        [[[0, 1], [4, 5]], [[8], [10]]],
        [[[2, 3], [6, 7]], [[9], []]],
    ]
    assert shown(outcomes, "processes") == [[0, 0], [1, 1]]
    assert shown(outcomes, "spec") == [["(None,)", "(None,)"]] * 2


def test_a_loop_may_be_broken_off_and_started_again(outcomes: list[Outcome]) -> None:
    first = [[[0, -1], [-4, -5]], [[-8, -9], [-12, -13]]]
    second = [[[-2, -3], [-6, -7]], [[-10, -11], [-14, -15]]]
    assert shown(outcomes, "broken off") == [[first, first], [second, second]]
    assert shown(outcomes, "restored") == [True, True]


def test_the_shards_of_a_shuffled_dataset_do_not_overlap(outcomes: list[Outcome]) -> None:
    first, second = shown(outcomes, "shuffled")
    assert sorted(first + second) == list(range(16))


def test_that_each_worker_reads_all_of_the_data_is_said_once(outcomes: list[Outcome]) -> None:
    for (message,) in shown(outcomes, "said"):
        assert "each of the 2 workers reads all of it" in message


def test_workers_with_less_data_go_on_with_empty_batches(outcomes: list[Outcome]) -> None:
    assert shown(outcomes, "own") == [
        [[[0, 1], [2]], [[], []]],
        [[[0, 1], [2, 3]], [[4, 5], [6]]],
    ]
    assert shown(outcomes, "optional") == [[True, True, False, False]] * 2


def test_fewer_files_than_workers_are_an_error_on_all_workers(outcomes: list[Outcome]) -> None:
    for kind, message in shown(outcomes, "too few files"):
        assert kind == "InvalidArgumentError"
        assert "fewer files than the 2 workers" in message


def test_an_error_of_one_worker_is_told_to_all(outcomes: list[Outcome]) -> None:
    (first, told), (second, message) = shown(outcomes, "broken")
    assert (first, second) == ("WorkerError", "ValueError")
    assert "worker 1" in told
    assert "a bad example" in told
    assert "a bad example" in message
