"""Processes of a cluster with parameter servers that are stopped, and go on later."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import distlab as dl
from distlab.errors import ServerLostError

LOST_SECONDS = 60.0
"""A stopped process must count as lost by then."""


def stopped_worker(folder: Path) -> list[str]:
    """Stops a worker in the middle of a function; returns what was wrong afterwards."""
    begun = folder / "begun"
    wrong = []
    with dl.launch(workers=2, parameter_servers=1) as cluster:
        strategy = dl.ParameterServerStrategy(cluster.resolver)
        coordinator = dl.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            count = dl.Variable(0)

        def step(number: int) -> int:
            if number == 0 and not begun.exists():
                begun.write_text(str(os.getpid()))
                time.sleep(2)
            count.assign_add(1)
            return number

        results = [coordinator.schedule(step, (number,)) for number in range(20)]
        while not begun.exists() or not begun.read_text():
            time.sleep(0.01)
        victim = int(begun.read_text())
        os.kill(victim, signal.SIGSTOP)
        began = time.monotonic()
        coordinator.join()
        seconds = time.monotonic() - began
        if seconds > LOST_SECONDS:
            wrong.append(f"a stopped worker was lost after {seconds:.0f} s")
        if coordinator.fetch(results) != list(range(20)) or int(count.numpy()) != 20:
            wrong.append(f"functions of a stopped worker: {count.numpy()} of 20 changes")
        os.kill(victim, signal.SIGCONT)
        cluster.client.wait_for_workers(3, timeout=120)
        coordinator.schedule(step, (1,))
        coordinator.join()
        if int(count.numpy()) not in (21, 22):  # the stopped one's change comes once at most
            wrong.append(f"after the stopped worker went on: {count.numpy()} changes, not 21 or 22")
    return wrong


def stopped_server() -> list[str]:
    """Stops a parameter server; returns what was wrong."""
    with dl.launch(workers=1, parameter_servers=1) as cluster:
        strategy = dl.ParameterServerStrategy(cluster.resolver)
        coordinator = dl.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            count = dl.Variable(0)
        os.kill(cluster.pid("ps", 0), signal.SIGSTOP)
        began = time.monotonic()
        coordinator.schedule(lambda: int(count))
        try:
            coordinator.join()
        except ServerLostError:
            seconds = time.monotonic() - began
            if seconds <= LOST_SECONDS:
                return []
            return [f"a stopped parameter server was lost after {seconds:.0f} s"]
    return ["a stopped parameter server was not told"]
