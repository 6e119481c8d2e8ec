"""A loop may dispatch steps as fast as it runs, without waiting for any."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import numpy as np
import distlab as dl

replicas, steps = int(sys.argv[1]), 5000
dl.use_cpu_devices(replicas)
strategy = dl.MirroredStrategy()
with strategy.scope():
    total = dl.Variable(0.0, aggregation=dl.VariableAggregation.MEAN)
state = strategy.replicate(np.zeros(8, np.float32))

def step(v):
    total.assign_add(v[0] * 0 + np.float32(1))
    return dl.get_replica_context().all_reduce("MEAN", v + 1)

for _ in range(steps):
    state = strategy.run(step, args=(state,))
print(float(total), [float(v[0]) for v in state.values])
"""


@pytest.mark.parametrize("replicas", [2, 4, 8])
def test_five_thousand_steps_without_waiting_come_to_their_end(replicas: int) -> None:
    # Plain JAX deadlocks here: see distlab/devices/in_flight.py.
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(replicas)],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout.strip() == f"5000.0 {[5000.0] * replicas}"
