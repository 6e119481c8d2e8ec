"""A loop may dispatch steps as fast as it runs, without waiting for any."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import numpy as np
import distlab as dl

replicas, steps = int(sys.argv[1]), 2000
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


def printed(program: str, replicas: int) -> str:
    """What a program prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(replicas)],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return done.stdout.strip()


def test_two_thousand_steps_without_waiting_come_to_their_end() -> None:
    # Plain JAX deadlocks here: see distlab/devices/in_flight.py.
    assert printed(PROGRAM, 8) == f"2000.0 {[2000.0] * 8}"


MIXED = """
import sys
import jax
import numpy as np
import distlab as dl

replicas, steps = int(sys.argv[1]), 1500
dl.use_cpu_devices(replicas)
strategy = dl.MirroredStrategy()
apart = together = called = strategy.replicate(np.zeros(8, np.float32))

def alone(v):
    return v + 1

def meet(v):
    return dl.get_replica_context().all_reduce("MEAN", v + 1)

def call(v):
    return jax.pure_callback(lambda x: np.asarray(x) + 1, v, v)

for number in range(steps):
    apart = strategy.run(alone, args=(apart,))
    if number % 3 == 0:
        together = strategy.run(meet, args=(together,))
    if number % 30 == 0:
        called = strategy.run(call, args=(called,))
print(*({float(v[0]) for v in value.values} for value in (apart, together, called)))
"""


def test_steps_that_wait_and_steps_that_do_not_come_to_their_end() -> None:
    """Steps without collectives are not counted as in flight."""
    assert printed(MIXED, 8) == "{1500.0} {500.0} {50.0}"
