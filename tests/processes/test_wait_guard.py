"""Workers that wait for each other at different lines are named; late ones are waited for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import distlab
from distlab.processes.group import Wait
from distlab.processes.wait_guard import _stuck, _Waiting
from tests.processes.cluster import Outcome, run_workers

BEGIN = """
import time
import jax.numpy as jnp
import distlab as dl
from distlab.processes import wait_guard

wait_guard._QUIET_SECONDS, wait_guard._LOOK_SECONDS = 0.5, 0.3
strategy = dl.MultiWorkerMirroredStrategy()

def data():
    signature = dl.data.TensorSpec([], "float32")
    return dl.data.Dataset.from_generator(lambda: map(float, range(64)), signature).batch(8)

def step(x):
    return strategy.reduce("SUM", strategy.run(lambda x: x.sum(), args=(x,)), axis=None)

batches = iter(strategy.experimental_distribute_dataset(data()))
step(next(batches))
began = time.monotonic()
"""

VALIDATION = """
try:
    if RANK == 0:
        validation = strategy.experimental_distribute_dataset(data())
    for x in batches:
        step(x)
except dl.errors.WorkerError as error:
    show("error", [type(error).__name__, str(error), time.monotonic() - began])
"""

GATHERED = """
x = next(batches)
try:
    if RANK == 0:
        strategy.gather(x, axis=0).tolist()
    for x in batches:
        pass
except dl.errors.WorkerError as error:
    show("error", [type(error).__name__, str(error), time.monotonic() - began])
"""

SAVED = """
with strategy.scope():
    checkpoint = dl.train.Checkpoint(v=dl.Variable(0.0))
try:
    if RANK == 1:
        checkpoint.write("saved by one alone")
    for x in batches:
        step(x)
except dl.errors.WorkerError as error:
    show("error", [type(error).__name__, str(error), time.monotonic() - began])
"""

LATE = """
def slow():
    for n in range(3):
        time.sleep(2.0 if RANK == 0 and n == 1 else 0.0)
        yield float(n)

dataset = dl.data.Dataset.from_generator(slow, dl.data.TensorSpec([], "float32")).batch(1)
totals = [float(step(x)) for x in strategy.experimental_distribute_dataset(dataset)]
if RANK == 1:
    time.sleep(2.0)
show("totals", totals + [float(step(jnp.ones(1)))])
"""


def outcomes(program: str) -> list[Outcome]:
    return run_workers(BEGIN + program, workers=2)


@pytest.mark.parametrize(
    ("program", "chief", "other"),
    [
        (VALIDATION, "worker 0 at program:23 (dataset 1)", "worker 1 at program:"),
        (GATHERED, "worker 0 at program:24 (a result of the devices)", "worker 1 at program:25"),
        (SAVED, "worker 0 at program:", "worker 1 at program:25 (checkpoint 0 0)"),
    ],
    ids=["validation", "gather", "save"],
)
def test_workers_that_wait_for_each_other_are_named(program: str, chief: str, other: str) -> None:
    for outcome in outcomes(program):
        kind, text, seconds = outcome.shown["error"]
        assert kind == "ProgramOrderError"
        assert chief in text
        assert other in text
        assert seconds < 30.0  # 2 on a quiet machine
        assert outcome.code == 0


def test_workers_that_are_late_or_read_slowly_go_on() -> None:
    for outcome in outcomes(LATE):
        assert outcome.shown["totals"] == [0.0, 1.0, 2.0, 2.0]


def waiting(*on: int, devices: bool = False, handed_over: int = 0) -> _Waiting:
    return _Waiting(1, "a.py:1", "x", [Wait("x", n, str(n)) for n in on], devices, handed_over)


@pytest.mark.parametrize(
    ("said", "stuck"),
    [
        ({0: waiting(1), 1: waiting(0)}, {0, 1}),
        ({0: waiting(1), 1: waiting(2)}, set()),
        ({0: waiting(1), 1: waiting(0), 2: waiting(0)}, {0, 1, 2}),
        ({0: waiting(1), 1: waiting(0), 2: waiting(3)}, {0, 1}),
        ({0: waiting(devices=True, handed_over=3), 1: waiting(0, handed_over=2)}, {0, 1}),
        ({0: waiting(devices=True, handed_over=2), 1: waiting(0, handed_over=2)}, set()),
        ({0: waiting(devices=True, handed_over=2)}, set()),
        ({}, set()),
    ],
)
def test_processes_that_wait_for_nobody_else_are_stuck(
    said: dict[int, _Waiting], stuck: set[int]
) -> None:
    assert set(_stuck(said)) == stuck


def test_the_store_is_waited_on_in_one_place() -> None:
    package = Path(distlab.__file__).parent
    own = {package / "processes" / "key_values.py", package / "processes" / "group.py"}
    waits = re.compile(
        r"blocking_key_value_get|wait_at_barrier|kv\.awaited|"
        r"sync_global_devices|process_allgather|broadcast_one_to_all"
    )
    assert not [
        f"{path.relative_to(package)}: {found.group()}"
        for path in package.rglob("*.py")
        if path not in own
        for found in waits.finditer(path.read_text())
    ]
