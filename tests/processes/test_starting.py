"""The start of several processes: a loss is named in all others, and sockets stay inside."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.launching.real_processes import Launched
from tests.processes.cluster import run_workers

KILLED = """
import os, signal, time
import jax
import distlab as dl
from distlab.devices import jax_internals
from distlab.processes import starting
from distlab.processes.group import ProcessGroup

def killed_in(owner, name):
    function = getattr(owner, name)
    def call(*args, **options):
        if RANK == VICTIM:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **options)
    setattr(owner, name, call)

killed_in(STAGE)
if RANK == 1:
    starting._LOOK_SECONDS = 0.5
try:
    dl.MultiWorkerMirroredStrategy()
except dl.errors.ClusterError as error:
    show("error", str(error))
    show("local", dl.MirroredStrategy(["CPU:0"]).run(lambda: jax.numpy.ones(())).item())
"""

INSIDE = """
import jax.numpy as jnp
import distlab as dl
from distlab.processes import gloo_sockets

strategy = dl.MultiWorkerMirroredStrategy()
show("sum", float(strategy.reduce("SUM", strategy.run(lambda: jnp.ones(())), axis=None)))
show("hosts", sorted({host for host, _ in gloo_sockets.listening()}))
"""


@pytest.mark.parametrize(
    ("stage", "victim", "workers"),
    [
        ('jax_internals, "connect"', 1, 3),
        ('jax, "devices"', 0, 2),
        ('ProcessGroup, "exchange"', 2, 3),
    ],
    ids=["connect", "devices", "addresses"],
)
def test_who_dies_while_starting_is_named_to_all(stage: str, victim: int, workers: int) -> None:
    program = KILLED.replace("VICTIM", str(victim)).replace("STAGE", stage)
    outcomes = run_workers(program, workers=workers)
    assert outcomes.pop(victim).code == -signal.SIGKILL
    for outcome in outcomes:
        assert f"worker:{victim} ended while they did" in outcome.shown["error"]
        assert outcome.shown["local"] == 1.0  # the program can go on alone
        assert outcome.code == 0


def test_workers_of_one_machine_need_neither_proxy_nor_network() -> None:
    closed = "http://127.0.0.1:9"
    outcomes = run_workers(
        INSIDE, workers=2, environment={"http_proxy": closed, "no_proxy": "example.com"}
    )
    for outcome in outcomes:
        assert outcome.shown["sum"] == 2.0
        assert outcome.shown["hosts"] == ["127.0.0.1"]


def test_the_launcher_names_who_ends_before_the_others_meet(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json, os, signal\n"
        "if json.loads(os.environ['TF_CONFIG'])['task']['index'] == 0:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "import distlab as dl\n"
        "try:\n"
        "    dl.MultiWorkerMirroredStrategy()\n"
        "except dl.errors.ClusterError as error:\n"
        "    print(error)\n"
    )
    with Launched("--workers", "2", "--grace", "100", str(program)) as run:
        assert run.end() == 128 + signal.SIGKILL
    begin = (
        "[worker-1] All processes of a cluster start together, and worker-0 was killed by SIGKILL"
    )
    assert [line for line in run.lines if line.startswith(begin)]
