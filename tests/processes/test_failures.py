"""Workers that are killed, raise, stop, are late or end early: what the others are told."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.launching.real_processes import Launched
from tests.processes.cluster import Outcome, run_workers

TOLD_WITHIN_S = 60.0
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

def step(x):
    return dl.get_replica_context().all_reduce("SUM", x)

def train(steps):
    for _ in range(steps):
        total = strategy.run(step, args=(jnp.ones(3),))
        kept["loss"] = float(np.asarray(strategy.experimental_local_results(total)[0])[0])
        kept["steps"] += 1

def train_until_told():
    began = time.monotonic()
    try:
        train(1000)
    except dl.errors.WorkerError as error:
        show("told", [error.worker, error.host == processes.worker.host, error.message])
        show("seconds", time.monotonic() - began)
        show("kept", kept)
        show("local", float(jnp.ones(5).sum()))
"""


def outcomes(program: str, *, workers: int = 2, timeout: float | None = None) -> list[Outcome]:
    return run_workers(BEGIN.replace("TIMEOUT", repr(timeout)) + program, workers=workers)


def assert_told(outcome: Outcome, worker: str, message: str, replicas: int = 2) -> None:
    assert outcome.shown["told"][:2] == [worker, True]
    assert message in outcome.shown["told"][2]
    assert outcome.shown["seconds"] < TOLD_WITHIN_S
    assert outcome.shown["kept"] == {"steps": 3, "loss": float(replicas)}
    assert outcome.shown["local"] == 5.0  # the devices of the process still work
    assert outcome.code == 0  # and it ends by itself


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_all_others_are_told_of_a_killed_worker(number: signal.Signals) -> None:
    first, killed, last = outcomes(
        f"""
train(3)
if RANK == 1:
    os.kill(os.getpid(), {int(number)})
    time.sleep(600)
train_until_told()
try:
    processes.barrier("after")
except dl.errors.WorkerError as error:
    show("barrier", error.worker)
""",
        workers=3,
    )
    assert killed.code == -number
    for outcome in (first, last):
        assert_told(outcome, "worker 1", "ended without a word: it was killed", replicas=3)
        assert outcome.shown["barrier"] == "worker 1"


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_before_a_collective_is_told_in_its_own_words(failing: int) -> None:
    both = outcomes(
        f"""
train(3)
if RANK == {failing}:
    raise ValueError("bad batch in shard 7")
train_until_told()
"""
    )
    assert both[failing].shown["raised"] == ["ValueError", "bad batch in shard 7"]
    assert_told(both[1 - failing], f"worker {failing}", "ValueError: bad batch in shard 7")


def test_an_error_is_passed_on_and_not_blamed_on_who_passes_it() -> None:
    results = outcomes(
        """
train(3)
if RANK == 2:
    raise ValueError("the first cause")
train(1000)
""",
        workers=3,
    )
    for outcome in results[:2]:
        kind, text = outcome.shown["raised"]
        assert kind == "WorkerError"
        assert text.startswith("worker 2 on ")
        assert text.endswith(": ValueError: the first cause")


def test_a_worker_whose_program_ends_too_early_is_named() -> None:
    first, _ = outcomes(
        """
train(3)
if RANK == 0:
    train_until_told()
"""
    )
    assert_told(first, "worker 1", "Its program has ended")


def test_an_error_in_a_thread_is_told_with_the_end_that_follows_from_it() -> None:
    first, second = outcomes(
        """
train(3)
if RANK == 0:
    train_until_told()
else:
    def load():
        raise OSError("no such shard")
    loader = threading.Thread(target=load, name="loader")
    loader.start()
    loader.join()
    train(0)  # nothing came, so the program takes no further step
"""
    )
    assert second.code == 0
    assert "raised" not in second.shown
    assert_told(first, "worker 1", "Its program has ended")
    assert "its thread 'loader' had raised OSError: no such shard" in first.shown["told"][2]


def test_an_error_in_a_thread_is_no_failure_of_its_worker() -> None:
    both = outcomes(
        """
train(3)
if RANK == 1:
    loader = threading.Thread(target=lambda: 1 / 0)
    loader.start()
    loader.join()
train(30)
show("steps", kept["steps"])
"""
    )
    assert [outcome.shown for outcome in both] == [{"steps": 33}] * 2


def test_a_stopped_worker_is_told_after_the_timeout() -> None:
    first, stopped = outcomes(
        """
train(3)
if RANK == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    train_until_told()
finally:
    os.kill(processes.workers[1].pid, signal.SIGKILL)
""",
        timeout=5.0,
    )
    assert stopped.code == -signal.SIGKILL
    silent = "no sign of life" in first.shown["told"][2]
    assert_told(first, "worker 1", "no sign of life" if silent else "did not come")


def test_a_late_worker_is_waited_for() -> None:
    results = outcomes(
        """
train(3)
if RANK == 0:
    threading.Timer(3.0, lambda: processes.kv.set("go", "")).start()
else:
    processes.kv.get("go", timeout=60)
train(3)
show("kept", kept)
""",
        timeout=40.0,
    )
    for outcome in results:
        assert outcome.shown["kept"] == {"steps": 6, "loss": 2.0}
        assert outcome.code == 0


def test_a_worker_that_is_later_than_the_timeout_is_named_and_told_so_itself() -> None:
    first, late = outcomes(
        """
train(3)
if RANK == 1:
    processes.kv.get("given up", timeout=60)
train_until_told()
if RANK == 0:
    processes.kv.set("given up", "")
""",
        timeout=5.0,
    )
    assert_told(first, "worker 1", "did not come to a collective in time")
    assert late.shown["told"][0] == "worker 0"


def test_with_the_launcher_the_loss_of_worker_0_is_no_one_elses_end(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json\n"
        "def show(name, value): print(f'SHOWN {json.dumps([name, value])}')\n"
        + BEGIN.replace("TIMEOUT", "None")
        + "train(3)\n"
        "if processes.index == 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "train_until_told()\n"
    )
    run = Launched("--workers", "2", "--grace", "100", str(program))
    try:
        assert run.end() == 128 + signal.SIGKILL
    finally:
        run.kill()
    begin = "[worker-1] SHOWN "
    shown = dict(json.loads(line[len(begin) :]) for line in run.lines if line.startswith(begin))
    assert_told(Outcome(0, shown), "worker 0", "ended without a word: it was killed")
    assert not [line for line in run.lines if "was ended by" in line or "Warning" in line]
