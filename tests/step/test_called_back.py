"""What a running step calls back, and what interrupts one, can't begin another step."""

from __future__ import annotations

from tests.devices.programs import finish

HEAD = """
import signal
import jax, jax.numpy as jnp, numpy as np
import distlab as dl

dl.use_cpu_devices(2)
strategy = dl.MirroredStrategy()
with strategy.scope():
    weight = dl.Variable(1.0)

def refused(error, text):
    assert text in str(error), error
    assert "in a function that a running step calls back" in str(error), error

found = []

def called_back(work, text):
    def inside(x):
        try:
            work()
        except dl.errors.ContextError as error:
            refused(error, text)
            found.append(text)
        return x

    def step(x):
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        y = jax.pure_callback(inside, shape, x)
        weight.assign_add(y)
        return y

    result = strategy.run(step, args=(jnp.float32(1.0),))
    jax.block_until_ready([value for value in result.values])
    assert found and set(found) == {text}, found
    found.clear()
"""


def test_a_function_that_a_step_calls_back_is_of_no_replica() -> None:
    program = (
        HEAD
        + """
called_back(lambda: strategy.run(lambda: 1), "run was called")
called_back(lambda: dl.get_replica_context().all_reduce("SUM", 1.0), "get_replica_context was")
called_back(lambda: weight.assign(5.0), "variable_0 was assigned")
called_back(lambda: float(weight), "variable_0 was read")
print(float(weight))
"""
    )
    assert finish(program, "-W", "error") == (0, "5.0\n")


def test_a_signal_handlers_step_amid_another_is_refused() -> None:
    program = (
        HEAD
        + """
from distlab.step.programs.program import Program

outcomes = []
inner = lambda: weight.assign_add(1.0)

def handler(*_):
    try:
        strategy.run(inner)
        outcomes.append("ran")
    except dl.errors.ContextError as error:
        assert "interrupted another call of run" in str(error), error
        outcomes.append("refused")

signal.signal(signal.SIGUSR1, handler)
execute = Program._execute

def interrupted(self, arrays):
    if not outcomes:
        signal.raise_signal(signal.SIGUSR1)
    return execute(self, arrays)

Program._execute = interrupted
for _ in range(3):
    strategy.run(inner)
signal.raise_signal(signal.SIGUSR1)
print(outcomes, float(weight))
"""
    )
    assert finish(program, "-W", "error") == (0, "['refused', 'ran'] 5.0\n")
