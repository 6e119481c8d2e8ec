"""Training runs that are killed at any moment, and started again with other replicas.

With 8 replicas the weights are divided over them, with fewer each has a copy.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXAMPLES = 203
EPOCHS = 3
BATCH = 16
WEIGHTS = 24

JOB = """
import json, sys
import distlab as dl
dl.use_cpu_devices(8)
import jax, jax.numpy as jnp, numpy as np

folder, replicas, in_background = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "async"
examples, epochs, batch, weights = map(int, sys.argv[4:8])
x = np.random.default_rng(0).normal(size=(examples, weights)).astype("float32")
y = x @ np.arange(weights, dtype="float32")
dataset = dl.data.Dataset.from_tensor_slices((np.arange(examples, dtype="int32"), x, y))
dataset = dataset.shuffle(50, seed=11).batch(batch).repeat(epochs)
strategy = dl.MirroredStrategy(jax.devices()[:replicas], shard_variables=replicas == 8 and 1)
total = {"synchronization": dl.VariableSynchronization.ON_READ,
         "aggregation": dl.VariableAggregation.SUM}
with strategy.scope():
    w = dl.Variable(jnp.zeros(weights), name="w")
    seen = dl.Variable(jnp.zeros(examples, jnp.int32), name="seen", **total)
    steps = dl.Variable(0, name="steps")

def step(i, x, y):
    def loss(w):
        return dl.nn.compute_average_loss((x @ w - y) ** 2, global_batch_size=batch)
    grads = jax.grad(loss)(w.value())
    w.assign_sub(0.02 * dl.get_replica_context().all_reduce("SUM", grads))
    seen.assign_add(jnp.zeros(examples, jnp.int32).at[i].add(1))
    steps.assign_add(1)

iterator = iter(strategy.experimental_distribute_dataset(dataset))
checkpoint = dl.train.Checkpoint(w=w, seen=seen, steps=steps, iterator=iterator)
with dl.BackupAndRestore(checkpoint, folder, save_freq=2, enable_async=in_background) as backup:
    print("from", int(steps), flush=True)
    for element in iterator:
        strategy.run(step, args=element)
        backup.step()
        print("step", flush=True)
counts = seen.numpy()
print(json.dumps({"steps": int(steps), "least": int(counts.min()), "most": int(counts.max()),
                  "w": w.numpy().tolist()}), flush=True)
"""


@dataclass(frozen=True)
class Outcome:
    """How a run came to its end.

    Attributes:
      kills: How often it was killed.
      starts: The step at which each process began.
      result: What the last process printed.
    """

    kills: int
    starts: list[int]
    result: dict[str, Any]


def run(folder: Path, kills: int, seed: int, *, in_background: bool) -> Outcome:
    """Runs a training to its end, through a number of kills at random moments.

    Args:
      folder: The folder of its backups.
      kills: How often to kill it, if it has not ended before.
      seed: Decides the moments and the replicas.
      in_background: Whether a thread writes the backups.
    """
    chosen = random.Random(seed)
    killed, starts = 0, []
    while True:
        process = _start(folder, chosen.choice([8, 3, 4, 1]), in_background=in_background)
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, process.communicate()[1]
        starts.append(int(first.split()[-1]))
        if killed < kills:
            for _ in range(chosen.randrange(1, 9)):  # the first step compiles, however long
                process.stdout.readline()
            time.sleep(chosen.uniform(0, 0.08))  # at any moment of a step, or of a save
            process.kill()
        out, error = process.communicate(timeout=120)
        if process.returncode == 0:
            return Outcome(killed, starts, json.loads(out.splitlines()[-1]))
        if process.returncode != -9:
            raise AssertionError(error)
        killed += 1


def _start(folder: Path, replicas: int, *, in_background: bool) -> subprocess.Popen[str]:
    how = "async" if in_background else "at once"
    sizes = map(str, (EXAMPLES, EPOCHS, BATCH, WEIGHTS))
    arguments = [str(folder), str(replicas), how, *sizes]
    return subprocess.Popen(
        [sys.executable, "-c", JOB, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "DISTLAB_RECORD": "off"},
    )
