"""Processes end well while threads run steps; forked children raise errors with a remedy."""

from __future__ import annotations

from tests.devices.programs import finish

BEGIN = """
import sys, threading, time
import jax, jax.numpy as jnp, numpy as np
import distlab as dl
dl.use_cpu_devices(4)
strategy = dl.MirroredStrategy()
batch = np.ones((100, 100), np.float32)
steps = []
eagerly = dl.RunOptions(run_eagerly=True)
def step(x):
    return dl.get_replica_context().all_reduce("SUM", x @ x)
def train(options=None):
    while True:
        strategy.run(step, args=(batch,), options=options)
        steps.append(None)
def train_and_tidy():
    try:
        train()
    finally:
        print("tidied", flush=True)
def evaluate():
    while True:
        value = strategy.run(step, args=(batch,))
        strategy.reduce("MEAN", value, axis=None)
        steps.append(None)
def wait_for_steps():
    end = time.monotonic() + 120
    while len(steps) < 20:
        assert time.monotonic() < end
        time.sleep(0.01)
"""


def test_a_program_ends_while_threads_run_steps() -> None:
    program = """
dl.background(train, eagerly)
dl.background(evaluate)
[threading.Thread(target=train, daemon=True).start() for _ in range(3)]
wait_for_steps()
print("main ends", flush=True)
"""
    assert finish(BEGIN + program, "-W", "error") == (0, "main ends\n")


def test_a_program_ends_while_the_background_takes_no_step() -> None:
    """The process was aborted: nothing ended a loop that takes no step of a strategy."""
    program = """
def compute():
    try:
        for _ in dl.data.Dataset.range(1).repeat():
            (jnp.ones((50, 50)) @ jnp.ones((50, 50))).block_until_ready()
            steps.append(None)
    finally:
        print("tidied", flush=True)
from distlab.control import background
background._EXIT_SECONDS = 1.0
dl.background(compute)
wait_for_steps()
print("main ends", flush=True)
"""
    assert finish(BEGIN + program, "-W", "error") == (0, "main ends\ntidied\n")


def test_a_thread_that_can_start_no_replica_ends_silently() -> None:
    program = """
def start(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")
job = dl.background(train, eagerly)
wait_for_steps()
threading.Thread.start = start  # as from the first moment of the end on, in Python 3.12
until = time.monotonic() + 60
while job.running and time.monotonic() < until:
    time.sleep(0.01)
print("main ends", job.running, flush=True)
"""
    assert finish(BEGIN + program, "-W", "error") == (0, "main ends False\n")


def test_the_end_waits_for_a_thread_that_traces_its_first_step() -> None:
    """On Python 3.12 the process was aborted, or crashed; so it was where compiling took 5 s."""
    program = """
from distlab.devices import in_flight
in_flight._EXIT_SECONDS = 0.3
tracing, ends = threading.Event(), threading.Event()
def slow(x):
    tracing.set()
    assert ends.wait(60)
    time.sleep(0.6)
    print("traced", flush=True)
    return x @ x
def train_slowly():
    strategy.run(slow, args=(batch,))
    print("one step too many", flush=True)
threading.Thread(target=train_slowly, daemon=True).start()
assert tracing.wait(60)
print("main ends", flush=True)
ends.set()
"""
    assert finish(BEGIN + program, "-W", "error") == (0, "main ends\ntraced\n")


def test_the_end_waits_for_a_thread_that_uses_a_variable() -> None:
    """The process was aborted now and then where it did not."""
    program = """
variable = dl.Variable(np.ones(3, np.float32))
using, ending = threading.Event(), []
def slow(value=None):
    using.set()
    until = time.monotonic() + 60
    while not ending or time.monotonic() < ending[0] + 0.6:  # no wait that could be one for a task
        assert time.monotonic() < until
        time.sleep(0.01)
    print("used", flush=True)
    return np.ones(3, np.float32)
class Slow:
    shape, dtype = (3,), np.dtype("float32")
    def __array__(self, dtype=None, copy=None):
        return slow()
def use():
    variable.scatter_add(dl.IndexedSlices(Slow(), [0, 1, 2]))
    variable.value()
    print("one use too many", flush=True)
threading.Thread(target=use, daemon=True).start()
assert using.wait(60)
print("main ends", flush=True)
ending.append(time.monotonic())
"""
    status, out = finish(BEGIN + program, "-W", "error")
    assert (status, out.splitlines()[:2]) == (0, ["main ends", "used"])
    assert "too many" not in out


def test_other_threads_finish_their_steps_first() -> None:
    """Python waits for them before anything is torn down."""
    program = """
def some_steps():
    for number in range(30):
        result = strategy.run(step, args=(batch,))
        time.sleep(0.01)
    print("done", float(strategy.experimental_local_results(result)[0][0, 0]))
threading.Thread(target=some_steps).start()
"""
    assert finish(BEGIN + program) == (0, "done 400.0\n")


FORKED = """
import os, warnings
warnings.simplefilter("ignore")  # JAX warns of every fork
with strategy.scope():
    variable = dl.Variable(jnp.ones(3))
    on_read = dl.Variable(
        1.0,
        synchronization=dl.VariableSynchronization.ON_READ,
        aggregation=dl.VariableAggregation.MEAN,
    )
value = strategy.run(step, args=(batch,))
dataset = strategy.experimental_distribute_dataset(dl.data.Dataset.range(64).batch(8))
checkpoint = dl.train.Checkpoint(variable=variable)
exported = dl.export(lambda x: x * 2, dl.data.TensorSpec([None], "float32"))
def feed():
    for numbers in dataset:
        strategy.run(lambda n: n + 1, args=(numbers,))
verbs = {
    "run": lambda: strategy.run(step, args=(batch,)),
    "run eagerly": lambda: strategy.run(step, args=(batch,), options=eagerly),
    "reduce": lambda: strategy.reduce("MEAN", value, axis=None),
    "reduce an axis": lambda: strategy.reduce("SUM", value, axis=0),
    "gather": lambda: strategy.gather(value, axis=0),
    "assign": lambda: variable.assign(jnp.zeros(3)),
    "dataset": feed,
    "operator": lambda: 1 + variable,
    "function of JAX": lambda: jnp.sum(variable),
    "read copies": lambda: on_read.read_value(),
    "new variable": lambda: dl.Variable(lambda: jnp.arange(5.0) * 2),
    "update": lambda: strategy.extended.update(variable, lambda v: v.assign(np.ones(3))),
    "save": lambda: checkpoint.save("forked/checkpoint"),
    "export": lambda: dl.export(lambda x: x, dl.data.TensorSpec([None], "float32")),
    "exported": lambda: exported(np.ones(3, np.float32)),
    "restore": lambda: checkpoint.restore("forked/checkpoint-1"),
}
for name, verb in verbs.items():
    child = os.fork()
    if child == 0:
        try:
            verb()
        except dl.errors.ContextError as error:
            assert "forked after JAX had started" in str(error) and '"spawn"' in str(error)
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7, name
print(float(strategy.reduce("MEAN", strategy.run(step, args=(batch,)), axis=None)[0, 0]))
"""


def test_a_forked_child_raises_with_the_remedy() -> None:
    assert finish(BEGIN + FORKED) == (0, "400.0\n")


def test_a_child_forked_while_a_thread_dispatches_raises_too() -> None:
    program = """
import os, warnings
warnings.simplefilter("ignore")
dl.background(train)
wait_for_steps()
for _ in range(5):
    child = os.fork()
    if child == 0:
        try:
            strategy.run(step, args=(batch,))
        except dl.errors.ContextError:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    assert finish(BEGIN + program) == (0, "")


def test_a_child_forked_before_jax_starts_runs_steps() -> None:
    program = """
import os
import distlab as dl
import jax
dl.use_cpu_devices(2)
child = os.fork()
strategy = dl.MirroredStrategy()
value = strategy.run(lambda: dl.get_replica_context().all_reduce("SUM", 1.0))
total = float(strategy.experimental_local_results(value)[0])
if child == 0:
    os._exit(int(total))
print(total, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert finish(program) == (0, "2.0 2\n")
