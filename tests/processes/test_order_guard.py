"""Workers run their programs in one order: who parts from the chief is named, with the step."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from distlab.devices import dispatch_order
from distlab.errors import ContextError, WorkerError
from tests.processes.cluster import run_workers

SECONDS = 60.0

PARTING = """
import time
import jax.numpy as jnp
import distlab as dl
from distlab.processes import group

strategy = dl.MultiWorkerMirroredStrategy()
processes = group.current()

def train(x):
    return dl.get_replica_context().all_reduce("SUM", x)

def evaluate(x):
    return dl.get_replica_context().all_reduce("SUM", 2 * x)

x = strategy.replicate(jnp.ones(3))
for step in range(5):
    strategy.run(train, args=(x,))
# Of the same size and kind: without a guard the numbers are wrong, and nothing else.
try:
    for function in (train, evaluate) if RANK == 0 else (evaluate, train):
        strategy.run(function, args=(x,))
except dl.errors.ProgramOrderError:
    pass  # the workers were told before the second one
while processes.failure is None:
    time.sleep(0.01)
told = processes.failure
show("told", [type(told).__name__, told.worker, told.step, told.message])
try:
    strategy.run(train, args=(x,))
except dl.errors.ProgramOrderError as error:
    show("refused", str(error))
show("alone", dl.MirroredStrategy(["CPU:0"]).run(lambda: jnp.ones(())).item())
"""


@pytest.fixture
def noting() -> Iterator[None]:
    dispatch_order.watch()
    yield
    dispatch_order.end()


def test_all_workers_are_told_at_which_program_they_part() -> None:
    for outcome in run_workers(PARTING, workers=2):
        kind, worker, step, message = outcome.shown["told"]
        assert (kind, worker, step) == ("ProgramOrderError", "worker 1", 6)
        assert "it ran evaluate where the chief ran train" in message
        assert message in outcome.shown["refused"]
        assert outcome.shown["alone"] == 1.0
        assert outcome.code == 0


@pytest.mark.usefixtures("noting")
def test_one_thread_hands_programs_over() -> None:
    raised: list[str] = []

    def other() -> None:
        try:
            dispatch_order.note("evaluate", [])
        except ContextError as error:
            raised.append(str(error))

    dispatch_order.note("train", ["float32[3]"])
    thread = threading.Thread(target=other, name="second")
    thread.start()
    thread.join(SECONDS)
    assert "'second' was about to run evaluate" in raised[0]
    assert dispatch_order.noted is not None
    assert dispatch_order.noted.get_nowait().name == "train"
    assert dispatch_order.noted.empty()


@pytest.mark.usefixtures("noting")
def test_a_thread_follows_one_that_has_ended() -> None:
    first = threading.Thread(target=dispatch_order.note, args=("train", []))
    first.start()
    first.join(SECONDS)
    dispatch_order.note("evaluate", [])


@pytest.mark.usefixtures("noting")
def test_after_a_failure_programs_are_refused_with_its_words() -> None:
    dispatch_order.refuse(WorkerError("worker 1", "node", "killed"))
    with pytest.raises(WorkerError, match="worker 1 on node: killed"):
        dispatch_order.note("train", [])


def test_fingerprints_differ_where_programs_do() -> None:
    names = {
        dispatch_order.fingerprint(parts) for parts in (["a"], ["b"], ["a", "b"], ["ab"], ["a", ""])
    }
    assert len(names) == 5
    assert dispatch_order.fingerprint(["a"]) in names
