"""The processes of a cluster on this machine: its workers, and who coordinates them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from distlab.launching import environment
from distlab.launching.ports import Ports
from distlab.launching.warden import Warden
from distlab.launching.worker_process import WorkerProcess, Write

_SCRIPT: Final = Path(__file__).with_name("coordinator_process.py")
QUIET: Final = {"TF_CPP_MIN_LOG_LEVEL": "3"}
"""The environment of the coordination service, without JAX's log."""


class ClusterProcesses:
    """All processes of one generation; `running` are those whose end was not yet noted."""

    def __init__(
        self,
        command: Sequence[str],
        workers: int,
        *,
        devices: int | None,
        generation: int,
        lost: str,
        warden: Warden,
        write: Write,
        ended: Callable[[WorkerProcess], None],
    ) -> None:
        self.running: list[WorkerProcess] = []
        self._ended = ended
        self._ports = Ports(workers + 1)
        self._coordinator: WorkerProcess | None = None
        *addresses, service = [f"127.0.0.1:{port}" for port in self._ports.numbers]
        try:
            if workers > 1:  # one worker has nobody to speak to
                self._coordinator = start_coordinator(
                    service, workers, warden=warden, write=write, ended=ended
                )
            for index in range(workers):
                self.running.append(
                    WorkerProcess(
                        f"worker-{index}",
                        command,
                        environment.for_worker(
                            index,
                            addresses,
                            inherited=os.environ,
                            coordinator=service if workers > 1 else None,
                            devices=devices,
                            generation=generation,
                            lost=lost,
                        ),
                        warden=warden,
                        write=write,
                        ended=ended,
                    )
                )
        except BaseException:
            self.close()
            raise

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to all workers that run."""
        for worker in self.running:
            worker.signal(number)

    def is_coordinator(self, process: WorkerProcess) -> bool:
        """Returns whether a process is the coordinator."""
        return process is self._coordinator

    def close(self) -> None:
        """Kills what still runs, and waits for it."""
        for process in (*self.running, *filter(None, [self._coordinator])):
            process.kill()
        self._ports.close()


def coordinator_command(address: str, workers: int) -> list[str]:
    """Returns the command of the coordination service."""
    # Without its own folder in the path, whose modules could hide others.
    return [sys.executable, "-P", str(_SCRIPT), address, str(workers)]


def start_coordinator(
    address: str,
    workers: int,
    *,
    warden: Warden,
    write: Write,
    ended: Callable[[WorkerProcess], None],
) -> WorkerProcess:
    """Starts the process of the coordination service, which serves until it is killed."""
    return WorkerProcess(
        "coordinator",
        coordinator_command(address, workers),
        {**os.environ, **QUIET},
        warden=warden,
        write=write,
        ended=ended,
    )
