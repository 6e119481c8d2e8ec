"""Ctrl-C at any moment of an eager step: variables are whole, and no thread is left over."""

from __future__ import annotations

import pytest

from tests.devices.programs import finish

PROGRAM = """
import random, signal, threading, time
import jax.numpy as jnp, numpy as np
import distlab as dl

dl.use_cpu_devices(3)
strategy = dl.MirroredStrategy()
with strategy.scope():
    mean = dl.VariableAggregation.MEAN
    weights = [dl.Variable(jnp.zeros(3), aggregation=mean) for _ in range(3)]

def step(x):
    for weight in weights:
        weight.assign_add(jnp.ones(3) * x)
    total = dl.get_replica_context().all_reduce("SUM", x)
    for weight in weights:
        weight.assign_sub(total * jnp.ones(3))
    return total

def interrupt(*_):
    raise KeyboardInterrupt

def train(seconds):
    signal.setitimer(signal.ITIMER_REAL, seconds)
    armed = time.monotonic()
    while time.monotonic() < armed + 10:  # Python ignores what is raised in a finaliser
        strategy.run(step, args=(1.0,), options=dl.RunOptions(run_eagerly=True))

def replicas():
    # Python goes on to list one whose start was interrupted, and which never ran.
    threads = [t for t in threading.enumerate() if t.ident is not None]
    return [t.name for t in threads if t.name.startswith("distlab replica")]

signal.signal(signal.SIGALRM, interrupt)
moments = random.Random(SEED)
interrupts = 0
while interrupts < 60:
    try:
        train(0.0005 + moments.random() * 0.03)
    except KeyboardInterrupt:
        interrupts += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    end = time.monotonic() + 60
    while replicas():
        assert time.monotonic() < end, replicas()
        time.sleep(0.001)
    values = {tuple(np.asarray(copy.value())) for weight in weights for copy in weight.values}
    assert len(values) == 1, values  # all of them take part in a step, or none
print(interrupts)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_sixty_interrupts_leave_whole_variables_and_no_thread(seed: int) -> None:
    program = PROGRAM.replace("SEED", str(seed))
    status, out = finish(program, "-W", "error")
    # Before that, Python tells of interrupts that came in a finaliser.
    assert (status, out.splitlines()[-1:]) == (0, ["60"]), out
