"""Loops of several workers, whose buttons are pressed on the page of one of them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.recorded_by_workers import launch

PROGRAM = """
import json
import sys
import threading
import time
from pathlib import Path

import jax.numpy as jnp

import distlab as dl
from distlab.control.loops import own

communication = dl.experimental.CommunicationOptions(timeout_seconds=3.0)
strategy = dl.MultiWorkerMirroredStrategy(
    devices_per_worker=1, communication_options=communication
)
worker = strategy.cluster_resolver.task_id
options = dl.data.Options()
options.experimental_distribute.auto_shard_policy = dl.data.AutoShardPolicy.DATA
dataset = dl.data.Dataset.range(40).batch(4).with_options(options)
batches = strategy.experimental_distribute_dataset(dataset)
control, taken, found = own(), [], {}


def until(what):
    while not what():
        time.sleep(0.01)


def press():
    until(lambda: len(taken) > 17)
    control.pause()
    until(lambda: control.state == "paused")
    held = len(taken)
    time.sleep(4)  # longer than a step may wait for others
    found["taken while paused"] = len(taken) - held
    control.step()
    until(lambda: len(taken) > held and control.state == "paused")
    found["taken by a step"] = len(taken) - held
    control.resume()
    until(lambda: len(taken) > held + 15)
    control.stop()


def step(x):
    return dl.get_replica_context().all_reduce("SUM", jnp.sum(x))


if worker == 1:
    threading.Thread(target=press, daemon=True).start()
with dl.record(None) as run:
    for epoch in range(10_000):
        for batch in dl.controlled(batches):
            strategy.run(step, args=(batch,))
            taken.append(epoch)
            time.sleep(0.005 * (1 + worker))
        if run.stopped:
            break
found |= {"epoch": epoch, "taken": len(taken), "stopped": run.stopped}
Path(sys.argv[1], f"{worker}.json").write_text(json.dumps(found))
"""


def test_all_workers_pause_step_and_stop_at_one_element(tmp_path: Path) -> None:
    launch(tmp_path / "loops.py", PROGRAM, str(tmp_path), devices=1)
    chief, pressed = (json.loads((tmp_path / f"{n}.json").read_text()) for n in range(2))
    assert pressed.pop("taken while paused") == 0
    assert pressed.pop("taken by a step") == 1
    assert pressed == chief
    assert chief["stopped"]
    assert 33 < chief["taken"] < 1_000
