"""Workers that are killed, raise, stop, are late or end early are named to the others."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.launching.real_processes import Launched
from tests.processes.cluster import Outcome, run_workers

ERROR_WITHIN_S = 60.0
"""A loaded machine is slow; docs/many-workers.md has what a quiet one takes."""

BEGIN = """
import os, signal, threading, time
import jax.numpy as jnp, numpy as np
import distlab as dl
from distlab.processes import group

strategy = dl.MultiWorkerMirroredStrategy(
    communication_options=dl.experimental.CommunicationOptions(timeout_seconds=TIMEOUT)
)
processes = group.current()
kept = {"steps": 0}
with strategy.scope():
    seen = dl.Variable(jnp.zeros(3), aggregation=dl.VariableAggregation.MEAN)

value = strategy.replicate(jnp.ones(3))

def step(x):
    seen.assign_add(x)
    return dl.get_replica_context().all_reduce("SUM", x)

def train(steps):
    for _ in range(steps):
        total = strategy.run(step, args=(jnp.ones(3),))
        kept["loss"] = float(strategy.reduce("MEAN", total, axis=None)[0])
        kept["steps"] += 1

def worker_in(work):
    try:
        work()
    except dl.errors.WorkerError as error:
        return error.worker

def train_until_error():
    began = time.monotonic()
    try:
        train(1000)
    except dl.errors.WorkerError as error:
        show("error", [error.worker, error.host == processes.worker.host, error.message])
        show("seconds", time.monotonic() - began)
        show("kept", kept)
        show("local", float(jnp.ones(5).sum()))
        again = [
            lambda: strategy.run(step, args=(value,)),
            lambda: strategy.reduce("SUM", value, axis=None),
            lambda: strategy.gather(value, axis=0),
            lambda: strategy.extended.batch_reduce_to("SUM", [(value, seen)]),
        ]
        show("again", [worker_in(work) for work in again])
        show("restored", float(seen.assign(jnp.ones(3)).numpy().sum()))
"""


def outcomes(program: str, *, workers: int = 2, timeout: float | None = None) -> list[Outcome]:
    return run_workers(BEGIN.replace("TIMEOUT", repr(timeout)) + program, workers=workers)


def assert_named(outcome: Outcome, worker: str, message: str, replicas: int = 2) -> None:
    assert outcome.shown["error"][:2] == [worker, True]
    assert message in outcome.shown["error"][2]
    assert outcome.shown["seconds"] < ERROR_WITHIN_S
    assert outcome.shown["kept"] == {"steps": 3, "loss": float(replicas)}
    assert outcome.shown["local"] == 5.0  # the devices of the process still work
    assert outcome.shown["again"] == [worker] * 4
    assert outcome.shown["restored"] == 3.0
    assert outcome.code == 0  # and it ends by itself


def test_a_killed_worker_is_named_to_all_others() -> None:
    first, killed, last = outcomes(
        """
train(3)
if RANK == 1:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)
train_until_error()
try:
    processes.barrier("after")
except dl.errors.WorkerError as error:
    show("barrier", error.worker)
""",
        workers=3,
    )
    assert killed.code == -signal.SIGKILL
    for outcome in (first, last):
        assert_named(
            outcome, "worker 1", "exited without reporting an error: it was killed", replicas=3
        )
        assert outcome.shown["barrier"] == "worker 1"


def test_an_error_of_one_worker_is_raised_by_the_others() -> None:
    patient, hasty, failed = outcomes(
        """
train(3)
if RANK == 2:
    raise ValueError("bad batch in shard 7")
train_until_error() if RANK == 0 else train(1000)
""",
        workers=3,
    )
    assert failed.shown["raised"] == ["ValueError", "bad batch in shard 7"]
    assert_named(patient, "worker 2", "ValueError: bad batch in shard 7", replicas=3)
    kind, text = hasty.shown["raised"]  # which is passed on, and not blamed on who passes it
    assert kind == "WorkerError"
    assert text.startswith("worker 2 on ")
    assert text.endswith(": ValueError: bad batch in shard 7")


def test_a_stopped_worker_is_lost_after_the_timeout() -> None:
    first, stopped = outcomes(
        """
train(3)
if RANK == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    train_until_error()
finally:
    os.kill(processes.workers[1].pid, signal.SIGKILL)
""",
        timeout=5.0,
    )
    assert stopped.code == -signal.SIGKILL
    silent = "no sign of life" in first.shown["error"][2]
    assert_named(first, "worker 1", "no sign of life" if silent else "did not come")


def test_late_workers_go_on_and_one_that_ends_too_early_is_named() -> None:
    first, second = outcomes(
        """
train(1)
if RANK == 1:
    loader = threading.Thread(target=lambda: 1 / 0)
    loader.start()
    loader.join()
train(1)
if RANK == 0:
    threading.Timer(3.0, lambda: processes.kv.set("go", "")).start()
else:
    processes.kv.awaited("go", 60)
train(1)
show("steps", kept["steps"])
if RANK == 0:
    train_until_error()
""",
        timeout=40.0,
    )
    assert (first.shown["steps"], second.shown["steps"]) == (3, 3)
    assert second.code == 0
    assert_named(first, "worker 1", "Its program has ended")


def test_a_worker_later_than_the_timeout_is_named() -> None:
    first, late = outcomes(
        """
train(3)
if RANK == 1:
    processes.kv.awaited("given up", 60)
train_until_error()
if RANK == 0:
    processes.kv.set("given up", "")
""",
        timeout=5.0,
    )
    assert_named(first, "worker 1", "did not come to a collective in time")
    assert late.shown["error"][0] == "worker 0"


def test_the_launcher_outlives_the_loss_of_worker_0(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json\n"
        "def show(name, value): print(f'SHOWN {json.dumps([name, value])}')\n"
        + BEGIN.replace("TIMEOUT", "None")
        + "train(3)\n"
        "if processes.index == 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "train_until_error()\n"
    )
    with Launched("--workers", "2", "--grace", "100", str(program)) as run:
        assert run.end() == 128 + signal.SIGKILL
    begin = "[worker-1] SHOWN "
    shown = dict(json.loads(line[len(begin) :]) for line in run.lines if line.startswith(begin))
    assert_named(Outcome(0, shown), "worker 0", "exited without reporting an error: it was killed")
    assert not [line for line in run.lines if "was ended by" in line or "Warning" in line]
