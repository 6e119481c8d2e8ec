"""A step that fails on the devices: its error is told once, by a call that does nothing else.

Of a step that assigned no variable, whose error may be handled already, a warning tells.
"""

from __future__ import annotations

import pytest

from distlab.devices import in_flight
from tests import own_process

PROGRAM = """
import sys
import warnings
import jax
import jax.numpy as jnp
import numpy as np
import distlab as dl
from distlab.devices import in_flight

dl.use_cpu_devices(2)
strategy = dl.MirroredStrategy()
with strategy.scope():
    counted = dl.Variable(0.0, aggregation=dl.VariableAggregation.MEAN)
    lost = dl.Variable(0.0, aggregation=dl.VariableAggregation.MEAN)

def count():
    counted.assign_add(1.0)
    return dl.get_replica_context().all_reduce("SUM", jnp.float32(1))

def failing(x):
    raise KeyError(f"no entry for {x}")

def asked(x):
    answer = jax.pure_callback(failing, jax.ShapeDtypeStruct((), jnp.float32), x)
    if sys.argv[2] == "assigned":
        lost.assign(answer)
    return dl.get_replica_context().all_reduce("SUM", answer)

value = strategy.run(count)
result = strategy.run(asked, args=(np.float32(1),))
if sys.argv[3] == "seen":
    try:
        jax.block_until_ready(result)
    except jax.errors.JaxRuntimeError as error:
        print("no entry" in str(error))
calls = {
    "run": lambda: strategy.run(count),
    "reduce": lambda: strategy.reduce("SUM", value, axis=None),
}
returned = 0
for _ in range(3 * in_flight.LIMIT):
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            calls[sys.argv[1]]()
        returned += 1
        for one in told:
            print(one.category.__name__, one.filename, "no entry" in str(one.message))
    except jax.errors.JaxRuntimeError as error:
        print(error.__notes__[0].partition(".")[0])
print(returned, counted.numpy())
"""


def test_a_later_call_raises_an_earlier_steps_error() -> None:
    done = own_process.run(PROGRAM, "run", "assigned", "seen")
    told = "An earlier step failed, and this call has done nothing"
    returned = 3 * in_flight.LIMIT - 1
    assert done.stdout.splitlines() == ["True", told, f"{returned} {1 + returned}.0"], done.stderr


def test_a_later_call_warns_of_a_step_without_assignments() -> None:
    done = own_process.run(PROGRAM, "reduce", "returned", "unseen")
    told = "RuntimeWarning <string> True"
    assert done.stdout.splitlines() == [told, f"{3 * in_flight.LIMIT} 1.0"], done.stderr


def test_an_unreported_step_error_is_printed_at_exit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "end_threads", lambda: None)
    monkeypatch.setattr(in_flight, "threads", set())
    monkeypatch.setattr(in_flight, "failed", [(ValueError("of a step"), True)])
    in_flight.finish()
    assert capsys.readouterr().err == "A step failed: ValueError: of a step\n"
