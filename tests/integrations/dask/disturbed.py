"""A run of counters whose workers and servers are killed and stopped at random moments."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import deque
from typing import Any

import jax.numpy as jnp
import psutil

import distlab as dl
from distlab.errors import ServerLostError
from distlab.integrations.dask.cluster import ParameterServerCluster
from tests.launching.real_processes import is_gone, wait_for
from tests.patience import wait_until

MOST_STEPS = 100_000
AHEAD = 40
STALL_SECONDS = 150.0
MOST_GIVEN = 16
"""The closures that a killed worker may have changed variables with, and not answered."""

REPORTED_SECONDS = 60.0
LOST_SECONDS = 35.0
"""After this time a stopped process counts as lost."""


def run(moments: int, seed: int) -> list[str]:
    """Disturbs one cluster at random moments, of which the last kills a server.

    Args:
      moments: The number of moments.
      seed: Chooses them.

    Returns:
      What was not as it must be.
    """
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with dl.launch(workers=2, parameter_servers=2) as cluster:
        wrong = _Series(cluster, random.Random(seed)).run(moments)
        started = {child.pid for child in psutil.Process().children(recursive=True)} - before
    wait_for(lambda: all(map(is_gone, started)), "the end of all processes")
    return wrong


class _Series:
    """Moments of one cluster.

    Args:
      cluster: The cluster.
      chance: Chooses the moments.
    """

    def __init__(self, cluster: ParameterServerCluster, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self._kills = 0
        self._disturbed = threading.Event()
        self._failed: list[BaseException] = []
        self.log: list[str] = []

    def run(self, moments: int) -> list[str]:
        """Trains until all moments but the last have passed, and then kills a server."""
        strategy = dl.ParameterServerStrategy(self._cluster.resolver)
        coordinator = dl.coordinator.ClusterCoordinator(strategy, stall_seconds=STALL_SECONDS)
        with strategy.scope():
            counts, total = dl.Variable(jnp.zeros(MOST_STEPS, jnp.int32)), dl.Variable(0)

        def step(number: int) -> int:
            time.sleep(0.01 * (number % 3))
            total.assign_add(1)
            counts.scatter_add(dl.IndexedSlices(jnp.ones(1, jnp.int32), jnp.array([number])))
            return number

        disturber = threading.Thread(target=self._disturb, args=(moments - 1,))
        disturber.start()
        wrong, steps = [], 0
        results: deque[Any] = deque()
        while not self._disturbed.is_set() or results:
            while not self._disturbed.is_set() and len(results) < AHEAD:
                results.append((steps, coordinator.schedule(step, (steps,))))
                steps += 1
            number, result = results.popleft()
            if result.fetch() != number:
                wrong.append(f"closure {number} gave {result.fetch()}")
        coordinator.join()
        disturber.join()
        wrong += [repr(error) for error in self._failed]
        seen = counts.numpy()[:steps]
        twice = int(seen.sum()) - steps
        if seen.min() < 1:
            wrong.append(f"{int((seen < 1).sum())} of {steps} closures had no effect")
        if twice > MOST_GIVEN * self._kills:
            wrong.append(f"{twice} closures ran again after {self._kills} lost workers")
        if abs(int(total.numpy()) - int(seen.sum())) > MOST_GIVEN * self._kills:
            wrong.append(f"one counter is {int(total.numpy())}, the other one {int(seen.sum())}")
        self.log.append(f"{steps} closures, {self._kills} workers lost, {twice} effects again")
        print("; ".join(self.log), flush=True)
        return wrong + self._kill_server(coordinator, step, steps)

    def _kill_server(self, coordinator: Any, step: Any, steps: int) -> list[str]:
        for number in range(steps, steps + AHEAD):
            coordinator.schedule(step, (number,))
        time.sleep(self._chance.uniform(0, 0.1))
        began = time.monotonic()
        self._cluster.kill("ps", self._chance.randrange(2))
        try:
            while True:  # it may have ended before
                coordinator.schedule(step, (steps,))
                coordinator.join()
        except ServerLostError:
            took = time.monotonic() - began
        return [f"a lost server was reported after {took:.0f} s"] if took > REPORTED_SECONDS else []

    def _disturb(self, moments: int) -> None:
        try:
            for number in range(moments):
                time.sleep(self._chance.uniform(0, 2))
                self._moment(last=number == moments - 1)
        except BaseException as error:  # noqa: BLE001 - reported as wrong
            self._failed.append(error)
        finally:
            self._disturbed.set()

    def _moment(self, *, last: bool) -> None:
        worker = self._chance.randrange(2)
        pid = self._cluster.pid("worker", worker)
        what = "forget" if last else self._chance.choice(["kill", "kill", "pause", "end", "server"])
        self.log.append(what)
        match what:
            case "kill":
                self._kill(worker, pid)
            case "pause":
                self._pause(pid, self._chance.uniform(0, 2))
            case "end":
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self._chance.uniform(0, 2))
                self._kill(worker, pid)
            case "server":
                self._pause(self._cluster.pid("ps", worker), self._chance.uniform(0, 2))
            case "forget":
                self._kills += 1
                self._pause(pid, LOST_SECONDS)

    def _kill(self, worker: int, pid: int) -> None:
        self._kills += 1
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self._cluster.pid("worker", worker) != pid, "the worker's new process")

    def _pause(self, pid: int, seconds: float) -> None:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
