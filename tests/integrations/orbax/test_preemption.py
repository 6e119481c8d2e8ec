"""PreemptionCheckpointHandler: a notice has all workers save after one step, and end."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distlab as dl
from distlab.cluster_resolver import ClusterSpec, SimpleClusterResolver
from distlab.errors import ArgumentTypeError, ArgumentValueError, UnsupportedError
from distlab.experimental import PreemptionCheckpointHandler, TerminationConfig
from tests.processes.cluster import Outcome, run_workers

pytestmark = pytest.mark.usefixtures("own_sigterm")


def sigterm() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_saves_before_the_next_run_and_exits_with_42(tmp_path: Path) -> None:
    weight = dl.Variable(0)
    handler = PreemptionCheckpointHandler(None, dl.train.Checkpoint(weight=weight), tmp_path)
    assert handler.total_run_calls == 0
    for _ in range(2):
        assert handler.run(lambda n: int(weight.assign_add(n)), 1) == int(weight)
    with pytest.raises(ZeroDivisionError):
        handler.run(lambda: 1 // 0)  # does not count
    sigterm()
    with pytest.raises(SystemExit) as end:
        handler.run(weight.assign_add, 1)
    assert end.value.code == 42
    assert int(weight) == 2
    again = dl.Variable(0)
    restored = PreemptionCheckpointHandler(None, dl.train.Checkpoint(weight=again), tmp_path)
    assert (restored.total_run_calls, int(again)) == (2, 2)


def test_the_exit_function_is_called_once_and_may_return(tmp_path: Path) -> None:
    exits: list[int] = []
    config = TerminationConfig(exit_fn=lambda: exits.append(1))
    checkpoint = dl.train.Checkpoint(x=np.zeros(2))
    handler = PreemptionCheckpointHandler(None, checkpoint, tmp_path, config)
    before = signal.getsignal(signal.SIGTERM)
    sigterm()
    for _ in range(3):
        handler.run(lambda: None)
    assert exits == [1]
    assert handler.total_run_calls == 3
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt-1"]
    assert signal.getsignal(signal.SIGTERM) is not before


def test_a_manager_and_a_save_function_are_used_as_they_are(tmp_path: Path) -> None:
    checkpoint = dl.train.Checkpoint(x=np.zeros(2))
    manager = dl.train.CheckpointManager(checkpoint, tmp_path, checkpoint_name="own")
    config = TerminationConfig(exit_fn=lambda: None)
    handler = PreemptionCheckpointHandler(None, manager, termination_config=config)
    sigterm()
    handler.save_checkpoint_if_preempted()
    assert [path.name for path in tmp_path.iterdir()] == ["own-1"]
    saved: list[Any] = []
    config = TerminationConfig(exit_fn=lambda: None, save_fn=lambda *args: saved.append(args))
    handler = PreemptionCheckpointHandler(None, manager, termination_config=config)
    assert handler.total_run_calls == 1
    sigterm()
    handler.save_checkpoint_if_preempted(7)
    assert saved == [(7,)]


def test_a_checkpoint_that_was_saved_without_it_is_restored(tmp_path: Path) -> None:
    dl.train.CheckpointManager(dl.train.Checkpoint(n=5), tmp_path).save()
    checkpoint = dl.train.Checkpoint(n=0)
    assert PreemptionCheckpointHandler(None, checkpoint, tmp_path).total_run_calls == 0
    assert checkpoint.n == 5


def test_a_users_function_may_give_the_notice(tmp_path: Path) -> None:
    notice = threading.Event()
    ended: list[int] = []
    config = TerminationConfig(notice.is_set, lambda: ended.append(1))
    handler = PreemptionCheckpointHandler(None, dl.train.Checkpoint(n=0), tmp_path, config)
    handler.run(lambda: None)
    notice.set()
    until = time.monotonic() + 60
    while not ended and time.monotonic() < until:
        handler.run(threading.Event().wait, 0.01)
    assert ended == [1]


def test_with_a_grace_period_it_saves_trains_on_and_saves_again(tmp_path: Path) -> None:
    ended: list[int] = []
    config = TerminationConfig(exit_fn=lambda: ended.append(1), grace_period=1)
    checkpoint = dl.train.Checkpoint(n=0)
    handler = PreemptionCheckpointHandler(None, checkpoint, tmp_path, config)
    handler.run(lambda: None)
    sigterm()
    until = time.monotonic() + 60
    with handler.watch_preemption_scope():
        while not ended and time.monotonic() < until:
            handler.run(threading.Event().wait, 0.01)
    assert ended == [1]
    assert checkpoint.save_counter == 2
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt-2"]


def test_misuse_is_refused(tmp_path: Path) -> None:
    checkpoint: Any = dl.train.Checkpoint(n=0)
    wrong: Any = "wrong"
    with pytest.raises(ArgumentValueError, match="needs the folder"):
        PreemptionCheckpointHandler(None, checkpoint)
    with pytest.raises(ArgumentTypeError, match=r"dl\.train\.Checkpoint or CheckpointManager"):
        PreemptionCheckpointHandler(None, wrong, tmp_path)
    servers = SimpleClusterResolver(ClusterSpec({"worker": ["a:1"], "ps": ["b:2"]}))
    with pytest.raises(UnsupportedError, match="parameter servers"):
        PreemptionCheckpointHandler(servers, checkpoint, tmp_path)


def test_a_loop_with_backups_saves_at_a_signal_and_goes_on_there(tmp_path: Path) -> None:
    def train(steps: int, interrupted: int) -> tuple[Any, int]:
        checkpoint = dl.train.Checkpoint(n=0)
        backup = dl.BackupAndRestore(
            checkpoint, tmp_path, save_freq=100, save_before_preemption=True
        )
        with backup:
            first = checkpoint.n
            while checkpoint.n < steps:
                checkpoint.n += 1
                if checkpoint.n == interrupted:
                    sigterm()
                backup.step()
        return first, checkpoint.n

    with pytest.raises(SystemExit) as end:
        train(10, interrupted=4)
    assert end.value.code == 42
    assert train(10, interrupted=-1) == (4, 10)
    assert list(tmp_path.iterdir()) == []


PROGRAM = """
import os, signal, threading
import numpy as np
import distlab as dl

strategy = dl.MultiWorkerMirroredStrategy()
pause = threading.Event()

class Ended(Exception):
    pass

def leave():
    raise Ended

checkpoint = dl.train.Checkpoint(seen=np.zeros(1))
handler = dl.experimental.PreemptionCheckpointHandler(
    strategy.cluster_resolver,
    checkpoint,
    "checkpoints",
    dl.experimental.TerminationConfig(exit_fn=leave, grace_period=GRACE),
)
show("first", [handler.total_run_calls, checkpoint.seen.tolist()])
if RANK == 1:
    os.kill(os.getpid(), signal.SIGTERM)
try:
    while True:
        handler.run(pause.wait, 0.002 * (RANK + 1))
        checkpoint.seen = checkpoint.seen + 1
except Ended:
    show("last", [handler.total_run_calls, checkpoint.seen.tolist()])
show("saves", checkpoint.save_counter)
"""


def preempted(folder: Path, grace: int | None = None) -> dict[str, Any]:
    """Runs a program on two workers, of which one is to be taken away; returns what both show."""
    start = f"import os; os.chdir({str(folder)!r}); GRACE = {grace}\n"
    found: list[Outcome] = run_workers(start + PROGRAM, workers=2)
    one, other = (outcome.shown for outcome in found)
    assert "raised" not in one
    assert one == other
    assert [outcome.code for outcome in found] == [0, 0]
    return dict(one)


def test_sigterm_on_one_worker_has_all_save_after_the_same_step(tmp_path: Path) -> None:
    first = preempted(tmp_path)
    runs, seen = first["last"]
    assert first["first"] == [0, [0.0]]
    assert seen == [runs]
    second = preempted(tmp_path, grace=1)
    assert second["first"] == [runs, seen]
    assert second["last"][0] > runs
    assert second["saves"] == first["saves"] + 2
