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
import jax.numpy as jnp
import numpy as np
import distlab as dl

strategy = dl.MultiWorkerMirroredStrategy(
    communication_options=dl.experimental.CommunicationOptions(timeout_seconds=120),
    devices_per_worker=DEVICES,
)
SUM, NONE = dl.VariableAggregation.SUM, dl.VariableAggregation.NONE
ON_READ = dl.VariableSynchronization.ON_READ
with strategy.scope():
    weights = dl.Variable(np.arange(3.0) + RANK, aggregation=SUM)
    total = dl.Variable(0.0, synchronization=ON_READ, aggregation=SUM)
    own = dl.Variable(0.0, synchronization=ON_READ, aggregation=NONE)
state = strategy.replicate({"m": np.ones(2, np.float32)})
options = dl.data.Options()
options.experimental_distribute.auto_shard_policy = dl.data.AutoShardPolicy.DATA
dataset = dl.data.Dataset.range(72).shuffle(72, seed=3).batch(12).with_options(options)
data = iter(strategy.experimental_distribute_dataset(dataset))
make = lambda context: dl.data.Dataset.range(9 + context.input_pipeline_id).batch(1)
others = iter(strategy.distribute_datasets_from_function(make))

def step(x):
    number = dl.get_replica_context().replica_id_in_sync_group
    weights.assign_add(x.sum() * jnp.ones(3))
    total.assign_add(x.sum().astype(jnp.float32))
    own.assign_add(1.0 + number)

def local(value):
    return [np.asarray(part).tolist() for part in strategy.experimental_local_results(value)]

def seen():
    return [weights.numpy().tolist(), float(total.numpy())]
"""

SAVE = """
rows = next(data)
strategy.run(step, args=(rows,))
for _ in range(4):
    next(others)
checkpoint = dl.train.Checkpoint(
    weights=weights, total=total, own=own, state=state, array=np.arange(3.0) + RANK, rank=RANK,
    rows=rows, data=data, others=others,
)
folder = "checkpoints"
manager = dl.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
for _ in range(3):
    path = manager.save()
    show("seen at once", os.path.basename(dl.train.latest_checkpoint(folder)))
show("files", sorted(os.listdir(folder)))
show("path", os.path.basename(path))
values = [seen(), [float(value) for value in own.values], local(rows)]
show("saved", values)
later = [local(next(data)), local(next(others))]
strategy.run(step, args=(next(data),))
checkpoint.array, checkpoint.rank = np.zeros(3), -1
checkpoint.restore(path)
show("restored", [seen(), [float(value) for value in own.values], local(checkpoint.rows)])
show("array", checkpoint.array.tolist())
show("rank", checkpoint.rank)
show("positions", [local(next(data)), local(next(others))] == later)
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
path = dl.train.latest_checkpoint("checkpoints")
checkpoint = dl.train.Checkpoint(
    weights=weights, total=total, state=state, array=np.zeros(3), rank=-1, data=data
)
checkpoint.restore(path, partial=True)
show("restored", seen())
show("array", checkpoint.array.tolist())
show("rank", checkpoint.rank)
show("next", local(next(data)))
for name, value in (("others", others), ("rows", next(data)), ("own", own)):
    try:
        dl.train.Checkpoint(**{name: value}).restore(path, partial=True)
    except Exception as error:
        show(name, [type(error).__name__, str(error)])
"""

ORDER = [int(np.asarray(x)) for x in dl.data.Dataset.range(72).shuffle(72, seed=3)]
FIRST = float(sum(ORDER[:12]))
VALUES = [[number + FIRST for number in range(3)], FIRST]


def workers(folder: Path, program: str, count: int, devices: int) -> list[Outcome]:
    start = f"import os; os.chdir({str(folder)!r}); DEVICES = {devices}"
    found = run_workers(f"{start}\n{COMMON}\n{program}", workers=count)
    assert [outcome.code for outcome in found] == [0] * count
    assert not any("raised" in outcome.shown for outcome in found), found
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("workers")
    (made / "a file").write_text("in the way")
    return made


@pytest.fixture(scope="module")
def saved(folder: Path) -> list[Outcome]:
    return workers(folder, SAVE, 2, devices=2)


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
    assert shown(saved, "saved") == shown(saved, "restored")
    assert [values[:2] for values in shown(saved, "saved")] == [
        [VALUES, [1.0, 2.0]],
        [VALUES, [3.0, 4.0]],
    ]
    assert shown(saved, "array") == [[0.0, 1.0, 2.0]] * 2
    assert shown(saved, "rank") == [0, 0]
    assert shown(saved, "positions") == [True, True]


def test_all_raise_the_error_of_a_chief_that_could_not_write(saved: list[Outcome]) -> None:
    for kind, message in shown(saved, "error"):
        assert kind == "CheckpointError"
        assert "a file" in message


def test_another_number_of_workers_restores_common_values(
    saved: list[Outcome], folder: Path
) -> None:
    assert saved
    found = workers(folder, RESTORE, 3, devices=1)
    assert shown(found, "restored") == [VALUES] * 3
    assert shown(found, "array") == [[0.0, 1.0, 2.0]] * 3
    assert shown(found, "rank") == [0] * 3
    # The last position was saved after a restore and two batches.
    assert [x for parts in shown(found, "next") for part in parts for x in part] == ORDER[24:36]
    for name, said in (("others", "2 were saved"), ("rows", "rows"), ("own", "of which 4 were")):
        for kind, message in shown(found, name):
            assert kind == "CheckpointMismatchError"
            assert said in message


def test_a_program_of_one_process_restores_it_too(saved: list[Outcome], folder: Path) -> None:
    assert saved
    path = dl.train.latest_checkpoint(folder / "checkpoints")
    values = dl.train.Checkpoint(array=np.zeros(3), rank=-1)
    values.restore(path, partial=True)
    assert values.array.tolist() == [0.0, 1.0, 2.0]
    numbers = dl.train.Checkpoint(others=iter(dl.data.Dataset.range(9)))
    with pytest.raises(CheckpointMismatchError, match="on each worker, of which 2 were saved"):
        numbers.restore(path, partial=True)
