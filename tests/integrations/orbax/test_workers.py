"""Checkpoints of several workers: the chief writes, all restore, on any number of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distlab as dl
from distlab.errors import CheckpointMismatchError
from tests.processes.cluster import Outcome, run_workers

COMMON = """
import os
import numpy as np
import distlab as dl

strategy = dl.MultiWorkerMirroredStrategy(
    communication_options=dl.experimental.CommunicationOptions(timeout_seconds=120),
    devices_per_worker=2,
)

def distributed(name):
    options = dl.data.Options()
    options.experimental_distribute.auto_shard_policy = dl.data.AutoShardPolicy[name]
    dataset = dl.data.Dataset.range(64).shuffle(64, seed=3).map(lambda x: x).batch(8)
    return iter(strategy.experimental_distribute_dataset(dataset.with_options(options)))

def own():
    make = lambda context: dl.data.Dataset.range(9 + context.input_pipeline_id).batch(1)
    return iter(strategy.distribute_datasets_from_function(make))

def local(value):
    return [np.asarray(part).tolist() for part in strategy.experimental_local_results(value)]
"""

SAVE = """
data, others = distributed("DATA"), own()
rows = next(data)
for _ in range(4):
    next(others)
own_files = dl.train.Checkpoint(rank=RANK)
checkpoint = dl.train.Checkpoint(
    weights=np.arange(3.0) + RANK, rows=rows, data=data, others=others, rank=RANK
)
folder = "checkpoints"
manager = dl.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
for _ in range(3):
    path = manager.save()
    show("seen at once", os.path.basename(dl.train.latest_checkpoint(folder)))
show("files", sorted(os.listdir(folder)))
show("path", os.path.basename(path))
later = [local(next(data)), local(next(others))]
rows_saved = local(rows)
checkpoint.weights, checkpoint.rank = np.zeros(3), -1
checkpoint.restore(path)
show("weights", checkpoint.weights.tolist())
show("rank", checkpoint.rank)
show("positions", [local(next(data)), local(next(others))] == later)
show("rows", local(checkpoint.rows) == rows_saved)
try:
    (dl.train.Checkpoint(rank=0)).save("a file/ckpt")
except Exception as error:
    show("error", [type(error).__name__, str(error)])
threaded = dl.train.CheckpointManager(checkpoint, folder, max_to_keep=2, enable_async=True)
path = threaded.save()
threaded.sync()
show("in a thread", os.path.basename(dl.train.latest_checkpoint(folder)))
if strategy.extended.should_checkpoint:
    dl.train.Checkpoint(alone=1).write("alone")
"""

RESTORE = """
data = distributed("DATA")
checkpoint = dl.train.Checkpoint(weights=np.zeros(3), data=data, rank=-1)
checkpoint.restore(dl.train.latest_checkpoint("checkpoints"), partial=True)
show("weights", checkpoint.weights.tolist())
show("next", local(next(data)))
show("rank", checkpoint.rank)
for name, value in (("others", own()), ("rows", next(data))):
    other = dl.train.Checkpoint(**{name: value})
    try:
        other.restore(dl.train.latest_checkpoint("checkpoints"), partial=True)
    except Exception as error:
        show(name, [type(error).__name__, str(error)])
"""


def workers(folder: Path, program: str, count: int) -> list[Outcome]:
    found = run_workers(f"import os; os.chdir({str(folder)!r})\n{COMMON}\n{program}", workers=count)
    assert [outcome.code for outcome in found] == [0] * count
    assert not any("raised" in outcome.shown for outcome in found)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("workers")
    (made / "a file").write_text("in the way")
    return made


@pytest.fixture(scope="module")
def saved(folder: Path) -> list[Outcome]:
    return workers(folder, SAVE, 2)


def shown(outcomes: list[Outcome], name: str) -> list[Any]:
    return [outcome.shown[name] for outcome in outcomes]


def test_all_save_and_the_chief_alone_writes(saved: list[Outcome], folder: Path) -> None:
    assert shown(saved, "seen at once") == ["ckpt-3", "ckpt-3"]
    assert shown(saved, "path") == ["ckpt-3", "ckpt-3"]
    assert shown(saved, "files") == [["ckpt-2", "ckpt-3"]] * 2
    assert shown(saved, "in a thread") == ["ckpt-4"] * 2
    left = {path.name for path in folder.iterdir()}
    assert left == {"a file", "checkpoints", "alone"}


def test_all_restore_the_chiefs_values_and_their_own_position(saved: list[Outcome]) -> None:
    assert shown(saved, "weights") == [[0.0, 1.0, 2.0]] * 2
    assert shown(saved, "rank") == [0, 0]
    assert shown(saved, "rows") == [True, True]
    assert shown(saved, "positions") == [True, True]


def test_all_are_told_that_the_chief_could_not_write(saved: list[Outcome]) -> None:
    for kind, message in shown(saved, "error"):
        assert kind == "CheckpointError"
        assert "a file" in message


def test_another_number_of_workers_restores_common_values(
    saved: list[Outcome], folder: Path
) -> None:
    assert saved
    order = list(map(int, dl.data.Dataset.range(64).shuffle(64, seed=3)))
    found = workers(folder, RESTORE, 1)
    third = order[16:24]  # the position was saved after a restore and two batches
    assert shown(found, "weights") == [[0.0, 1.0, 2.0]]
    assert shown(found, "rank") == [0]
    assert shown(found, "next") == [[third[:4], third[4:]]]
    for name in ("others", "rows"):
        kind, message = found[0].shown[name]
        assert kind == "CheckpointMismatchError"
        assert name in message


def test_a_program_of_one_process_restores_it_too(saved: list[Outcome], folder: Path) -> None:
    assert saved
    path = dl.train.latest_checkpoint(folder / "checkpoints")
    values = dl.train.Checkpoint(weights=np.zeros(3), rank=-1)
    values.restore(path, partial=True)
    assert values.weights.tolist() == [0.0, 1.0, 2.0]
    numbers = dl.train.Checkpoint(others=iter(dl.data.Dataset.range(9)))
    with pytest.raises(CheckpointMismatchError, match="on each worker, of which 2 were saved"):
        numbers.restore(path, partial=True)


VARIABLES = """
import os
import jax.numpy as jnp
import numpy as np
import distlab as dl

strategy = dl.MultiWorkerMirroredStrategy(devices_per_worker=DEVICES)
SUM, NONE = dl.VariableAggregation.SUM, dl.VariableAggregation.NONE
ON_READ = dl.VariableSynchronization.ON_READ
with strategy.scope():
    weights = dl.Variable(np.arange(3.0) + RANK, aggregation=SUM)
    total = dl.Variable(0.0, synchronization=ON_READ, aggregation=SUM)
    own = dl.Variable(0.0, synchronization=ON_READ, aggregation=NONE)
state = strategy.replicate({"m": np.ones(2, np.float32)})
dataset = dl.data.Dataset.range(32).shuffle(32, seed=2).batch(8)
iterator = iter(strategy.experimental_distribute_dataset(dataset))

def step(x):
    number = dl.get_replica_context().replica_id_in_sync_group
    weights.assign_add(x.sum() * jnp.ones(3))
    total.assign_add(x.sum().astype(jnp.float32))
    own.assign_add(1.0 + number)

def seen():
    return [weights.numpy().tolist(), float(total.numpy())]

def of_each():
    return [float(value) for value in own.values]

def examples():
    parts = strategy.experimental_local_results(next(iterator))
    return [x for part in parts for x in np.asarray(part).tolist()]

common = dict(weights=weights, total=total, state=state, iterator=iterator)
if SAVES:
    manager = dl.train.CheckpointManager(dl.train.Checkpoint(own=own, **common), "variables")
    strategy.run(step, args=(next(iterator),))
    manager.save()
    show("saved", seen())
    before = of_each(), examples()
    strategy.run(step, args=(next(iterator),))
    manager.restore_latest()
    show("restored", seen())
    show("own", [before, (of_each(), examples())])
else:
    path = dl.train.latest_checkpoint("variables")
    dl.train.Checkpoint(**common).restore(path, partial=True)
    show("restored", seen())
    show("examples", examples())
    try:
        dl.train.Checkpoint(own=own).restore(path, partial=True)
    except Exception as error:
        show("own", [type(error).__name__, str(error)])
"""


def test_variables_are_restored_on_another_number_of_workers(tmp_path: Path) -> None:
    def run(count: int, devices: int, saves: bool) -> list[Outcome]:
        start = f"import os; os.chdir({str(tmp_path)!r}); DEVICES = {devices}; SAVES = {saves}\n"
        found = run_workers(start + VARIABLES, workers=count)
        assert not any("raised" in outcome.shown for outcome in found)
        return found

    order = list(map(int, dl.data.Dataset.range(32).shuffle(32, seed=2)))
    sum_of_first = float(sum(order[:8]))
    values = [[n + sum_of_first for n in range(3)], sum_of_first]
    saved = run(2, 2, saves=True)
    assert shown(saved, "saved") == shown(saved, "restored") == [values] * 2
    for before, after in shown(saved, "own"):
        assert before == after
    assert [before[0] for before, _ in shown(saved, "own")] == [[1.0, 2.0], [3.0, 4.0]]
    others = run(3, 1, saves=False)
    assert shown(others, "restored") == [values] * 3
    assert [x for part in shown(others, "examples") for x in part] == order[8:16]
    for kind, message in shown(others, "own"):
        assert kind == "CheckpointMismatchError"
        assert "4 were saved and there are 3 now" in message
