"""Engines of ipyparallel, one for each worker: started, replaced and ended."""

from __future__ import annotations

import logging
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from distlab.launching.warden import Warden

_START_SECONDS: Final = 120
_END_SECONDS: Final = 10.0
# An engine counts as started with its first heartbeat, which by default takes 6 seconds.
_HEARTBEAT_MS: Final = 200
_LOST_AFTER_BEATS: Final = 300


class Engines:
    """One engine for each worker; `numbers` has ipyparallel's number of each."""

    def __init__(self, workers: int, launcher: str | None, warden: Warden) -> None:
        import ipyparallel
        import zmq

        configured = {} if launcher is None else as_configured(launcher)
        self._folder = tempfile.mkdtemp(prefix="distlab-cluster-")
        self._warden = warden
        self._is_local = launcher is None
        self._watched: set[int] = set()
        self.client: Any = None
        self.numbers: list[int] = []
        try:
            self._cluster: Any = ipyparallel.Cluster(
                profile_dir=self._folder,
                load_profile=False,
                delay=0.0,
                log_level=logging.ERROR,
                shutdown_atexit=False,
                engine_timeout=_START_SECONDS,
                controller_args=[
                    f"--IPController.enable_curve={zmq.has('curve')}",  # encrypted, with keys
                    f"--HeartMonitor.period={_HEARTBEAT_MS}",
                    f"--HeartMonitor.max_heartmonitor_misses={_LOST_AFTER_BEATS}",
                ],
                **configured,
            )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        try:
            self._cluster.start_controller_sync()
            self._watch([getattr(self._cluster.controller, "pid", -1)])
            self.numbers = [-1] * workers
            self.start_missing()
        except BaseException:
            self.stop()
            raise

    def view(self, worker: int) -> Any:
        """Returns ipyparallel's view of a worker's engine."""
        return self.client[self.numbers[worker]]

    def lost(self) -> list[int]:
        """Returns the workers whose engine is gone."""
        living = set(self.client.ids)
        return [worker for worker, number in enumerate(self.numbers) if number not in living]

    def start_missing(self) -> list[int]:
        """Starts an engine for each worker that has none, and returns these workers."""
        known = set(self.client.ids) if self.client is not None else set()
        missing = [worker for worker, number in enumerate(self.numbers) if number not in known]
        if not missing:
            return []
        self._cluster.start_engines_sync(len(missing))
        self._watch(self._local_processes())
        if self.client is None:
            self.client = self._cluster.connect_client_sync()
        self.client.wait_for_engines(len(self.numbers), timeout=_START_SECONDS, interactive=False)
        # The helper of each engine has a group of its own.
        self._watch([one.pid for pid in self._local_processes() for one in _tree(pid)])
        fresh = sorted(set(self.client.ids) - known)
        for worker, number in zip(missing, fresh, strict=True):
            self.numbers[worker] = number
        return missing

    def signal(self, workers: Sequence[int], number: signal.Signals) -> None:
        """Sends a signal to the engines of some workers, those on other machines too."""
        gone = set(self.lost())
        targets = [self.numbers[worker] for worker in workers if worker not in gone]
        if targets:
            from ipyparallel.error import CompositeError, EngineError

            with suppress(CompositeError, EngineError):
                self.client.send_signal(int(number), targets=targets, block=True)

    def stop(self) -> None:
        """Ends the engines and the controller, and waits until their processes have ended."""
        import psutil

        left = [process for pid in self._watched for process in _tree(pid)]
        if self.client is not None:
            self.client.close()
        with suppress(Exception):  # what does not end is killed below
            self._cluster.stop_engines_sync()
        with suppress(Exception):
            self._cluster.stop_controller_sync()
        # Engines that are stopped or stuck are left, and their helpers, which take their time.
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=_END_SECONDS)
        for pid in self._watched:
            self._warden.forget(pid)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _local_processes(self) -> list[int]:
        if not self._is_local:  # their numbers are those of processes on other machines
            return []
        return [
            engine.pid
            for engine_set in self._cluster.engines.values()
            for engine in getattr(engine_set, "launchers", {}).values()
            if hasattr(engine, "pid")
        ]

    def _watch(self, pids: list[int]) -> None:
        for pid in pids:
            if pid > 0 and pid not in self._watched:
                self._watched.add(pid)
                self._warden.watch(pid)


def as_configured(launcher: str) -> dict[str, Any]:
    """Returns a launcher with the settings of the user's default profile of IPython."""
    import ipyparallel

    return {"engines": launcher, "config": ipyparallel.Cluster().profile_config}


def _tree(pid: int) -> list[Any]:
    """Returns a process and all that it started; nothing where it has ended."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []
