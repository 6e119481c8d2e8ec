"""A cluster for a notebook: workers on ipyparallel's engines, of which the kernel is none."""

from __future__ import annotations

import atexit
import os
import queue
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Self, TypeVar

from distlab.errors import ClusterError
from distlab.integrations.ipyparallel import engine
from distlab.integrations.ipyparallel.calls import Call
from distlab.integrations.ipyparallel.engines import Engines
from distlab.launching import environment
from distlab.launching.cluster_processes import start_coordinator
from distlab.launching.ports import Ports
from distlab.launching.warden import Warden
from distlab.launching.worker_process import WorkerProcess
from distlab.runs.collector import Collector

T = TypeVar("T")

_CALL_SECONDS: Final = 120.0
_SIGNAL_SECONDS: Final = 0.5
_INTERRUPT_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.02


class Cluster:
    """Workers that run functions and cells together; `dl.launch` makes it.

    The notebook's own process is not one of them: it starts them, watches them and stays as it
    is when one is lost. The workers' variables live in the workers.

    Attributes:
      workers: The number of workers.
      devices: The number of CPU devices of each; None for the strategy's default.
      generation: How often `restart` was called.
    """

    def __init__(self, workers: int, devices: int | None, launcher: str | None) -> None:
        """Starts the workers.

        Args:
          workers: Their number.
          devices: The number of CPU devices of each; None for the strategy's default.
          launcher: Which of ipyparallel's launchers starts them; None for processes of this
            machine.
        """
        self.workers = workers
        self.devices = devices
        self.generation = 0
        self._service: WorkerProcess | None = None
        self._collector: Collector | None = None
        self._ports: Ports | None = None
        self._hosts: dict[int, str] = {}
        self._stopped = False
        self._warden = Warden()
        try:
            self._engines = Engines(workers, launcher, self._warden)
        except BaseException:
            self._warden.close()
            raise
        atexit.register(self.stop)
        try:
            self._enter()
        except BaseException:
            self.stop()
            raise
        from distlab.integrations.ipyparallel import magic

        magic.offer(self)

    def run(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> list[T]:
        """Calls a function on all workers, with the same arguments.

        Args:
          fn: The function. One that the notebook defines is sent to the workers; the names that
            it uses are looked up there.
          *args: Arguments that can be pickled.
          **kwargs: Named arguments that can be pickled.

        Returns:
          The result of each worker.

        Raises:
          WorkerError: A worker raised an error, or is lost. The tracebacks are printed.
          ClusterError: The cluster was stopped.
        """
        call = self._begin(range(self.workers), lambda view: view.apply_async(fn, *args, **kwargs))
        return call.values(self._hosts)

    def execute(self, code: str, workers: Sequence[int] | None = None) -> None:
        """Runs a cell on workers, and shows its output with the worker's name before each line.

        Args:
          code: The cell.
          workers: The workers that run it, by default all.

        Raises:
          WorkerError: A worker raised an error, or is lost. The tracebacks are printed.
          ClusterError: The cluster was stopped.
        """
        chosen = range(self.workers) if workers is None else workers
        call = self._begin(chosen, lambda view: view.execute(code, silent=False, block=False))
        call.show_last_values()
        call.values(self._hosts)

    def interrupt(self) -> None:
        """Interrupts what the workers run, as Ctrl-C does."""
        self._engines.signal(range(self.workers), signal.SIGINT)

    def restart(self) -> None:
        """Brings the workers together anew after a failure.

        Workers that live keep their interpreters, with all variables; lost ones, and those that
        can't be interrupted, are replaced. Make the strategy again on all of them, and go on
        from the last checkpoint.

        Raises:
          ClusterError: The cluster was stopped.
        """
        self._require_running()
        self.interrupt()
        living = [w for w in range(self.workers) if w not in self._engines.lost()]
        left = {worker: self._engines.view(worker).apply_async(engine.leave) for worker in living}
        _await(lambda: all(result.ready() for result in left.values()), _INTERRUPT_SECONDS)
        stuck = [worker for worker, result in left.items() if not _succeeded(result)]
        self._kill(stuck)
        self.generation += 1
        self._engines.start_missing()
        self._enter()

    def stop(self) -> None:
        """Ends the workers. Ends of the program and of the `with` statement do it, too."""
        if self._stopped:
            return
        self._stopped = True
        atexit.unregister(self.stop)
        from distlab.integrations.ipyparallel import magic

        magic.withdraw(self)
        self._engines.stop()
        self._stop_service()
        if self._collector is not None:
            self._collector.close()
        self._warden.close()

    def _begin(self, workers: Sequence[int], start: Callable[[Any], Any]) -> Call:
        """Starts something on workers, and waits for its end."""
        self._require_running()
        lost = self._engines.lost()
        if lost:
            names = ", ".join(f"worker {worker}" for worker in lost)
            raise ClusterError(
                f"All workers must live, and {names} is lost. Call restart(): the others keep "
                "their variables."
            )
        views = {worker: self._engines.view(worker) for worker in workers}
        call = Call({w: start(view) for w, view in views.items()})
        try:
            call.wait(self._tell, lambda running: self._engines.signal(running, signal.SIGINT))
        except KeyboardInterrupt:
            stuck = ", ".join(f"worker {worker}" for worker in self._interrupt(call))
            still = f" {stuck} still runs." if stuck else ""
            print(
                f"Interrupted.{still} The workers may be at different steps: restart() brings them "
                "together, and keeps their variables.",
                file=sys.stderr,
            )
            raise
        return call

    def _interrupt(self, call: Call) -> list[int]:
        """Interrupts a call. One that the signal ended publishes it: none ends a collective."""
        self._engines.signal(call.running(), signal.SIGINT)
        _await(lambda: not call.running(), _SIGNAL_SECONDS)
        _await(lambda: bool(call.ended()), _INTERRUPT_SECONDS)
        if call.ended() and call.running():
            self._tell(call.ended()[0], "It was interrupted.")
        _await(lambda: not call.running(), _INTERRUPT_SECONDS)
        return call.running()

    def _tell(self, worker: int, message: str) -> bool:
        """Lets a failed worker tell the others, which may wait for it in a collective."""
        if worker in self._engines.lost():
            return False
        return bool(self._engines.view(worker).apply_async(engine.tell, message).get(_CALL_SECONDS))

    def _enter(self) -> None:
        """Gives each engine its place in the cluster."""
        places = self._call(engine.place)
        self._hosts = {worker: host for worker, (host, _, _) in enumerate(places)}
        here = socket.gethostname()
        local = set(self._hosts.values()) == {here}
        addresses = [f"{'127.0.0.1' if local else host}:{port}" for host, port, _ in places]
        service = self._start_service() if local and self.workers > 1 else None
        collector = None if local else self._start_collector(here)
        paths = [os.path.abspath(path) for path in sys.path]  # noqa: PTH100 - "" is this folder
        calls = [
            self._engines.view(worker).apply_async(
                engine.enter,
                environment.for_worker(
                    worker,
                    addresses,
                    inherited={},
                    coordinator=service,
                    devices=self.devices,
                    generation=self.generation,
                    collector=collector,
                ),
                paths if local else [],
            )
            for worker in range(self.workers)
        ]
        for call in calls:
            call.get(_CALL_SECONDS)

    def _call(self, fn: Callable[[], T]) -> list[T]:
        calls = [self._engines.view(worker).apply_async(fn) for worker in range(self.workers)]
        return [call.get(_CALL_SECONDS) for call in calls]

    def _start_service(self) -> str:
        """Starts the coordination service beside the workers, so that each may be lost."""
        self._stop_service()
        self._ports = Ports(1)
        address = f"127.0.0.1:{self._ports.numbers[0]}"
        ended: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        self._service = start_coordinator(
            address,
            self.workers,
            warden=self._warden,
            write=lambda _stream, _name, line: print(
                line.decode(errors="replace"), file=sys.stderr
            ),
            ended=ended.put,
        )
        return address

    def _start_collector(self, host: str) -> str:
        """Takes the events of workers on other machines, and writes the files of their runs."""
        if self._collector is None:
            self._collector = Collector()
        return f"{host} {self._collector.port} {self._collector.key}"

    def _stop_service(self) -> None:
        if self._service is not None:
            self._service.kill()
            self._service = None
        if self._ports is not None:
            self._ports.close()
            self._ports = None

    def _kill(self, workers: list[int]) -> None:
        self._engines.signal(workers, signal.SIGKILL)
        if not _await(lambda: set(workers) <= set(self._engines.lost()), _CALL_SECONDS):
            raise ClusterError(
                f"The workers {workers} could not be ended within {_CALL_SECONDS:g} seconds. "
                "Call stop() and launch a new cluster."
            )

    def _require_running(self) -> None:
        if self._stopped:
            raise ClusterError("The cluster was stopped. Launch a new one: distlab.launch(...).")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        """Names the workers and their machines."""
        if self._stopped:
            return f"Cluster({self.workers} workers, stopped)"
        hosts = ", ".join(sorted(set(self._hosts.values())))
        each = f" with {self.devices} CPU devices each" if self.devices else ""
        lost = "".join(f", worker {worker} is lost" for worker in self._engines.lost())
        return f"Cluster({self.workers} workers{each} on {hosts}{lost})"


def _await(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits until a condition is true, and returns whether it became so in time."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _succeeded(result: Any) -> bool:
    return result.ready() and result.successful()
