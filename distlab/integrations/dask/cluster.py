"""A cluster of this machine: workers and parameter servers that Dask starts as processes."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import signal
import sys
from types import TracebackType
from typing import Any, Final, Self, final

import dask
from distributed import Client, Scheduler
from distributed.deploy.cluster import Cluster
from distributed.deploy.spec import ProcessInterface, SpecCluster

from distlab.errors import ArgumentValueError, ClusterError
from distlab.integrations.dask.members import lose_all
from distlab.integrations.dask.references import CoordinatorsOwn
from distlab.integrations.dask.resolver import DaskClusterResolver
from distlab.integrations.dask.settings import SETTINGS

_START_SECONDS: Final = 120.0
_RESTART_SECONDS: Final = 0.2
_STOP_SECONDS: Final = 10
_PIECE_BYTES: Final = 1 << 16
_HOST: Final = "127.0.0.1"
_log: Final = logging.getLogger("distributed")


class _TaskProcess(ProcessInterface):
    """The process of one task. A worker that ends is started again, with the same name."""

    def __init__(self, scheduler: str, name: str, *, restarts: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._scheduler = scheduler
        self._name = name
        self._restarts = restarts
        self._watching: asyncio.Task[None] | None = None
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Starts the process, and watches it."""
        await self._start()
        self._watching = asyncio.ensure_future(self._watch())
        await super().start()  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Ends the process."""
        if self._watching is not None:
            self._watching.cancel()
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        await super().close()  # type: ignore[no-untyped-call]

    async def _start(self) -> None:
        module = "distlab.integrations.dask.task_process"
        paths = os.pathsep.join(path for path in sys.path if path)
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, self._scheduler, self._name),
            env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def _print_lines(self, output: asyncio.StreamReader) -> None:
        rest = b""
        while some := await output.read(_PIECE_BYTES):
            *lines, rest = (rest + some).split(b"\n")
            if len(rest) > _PIECE_BYTES:  # no line is too long, or kept for ever
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._print(line)
        if rest:
            self._print(rest)

    def _print(self, line: bytes) -> None:
        print(f"[{self._name}] {line.decode(errors='replace')}", flush=True)

    async def _watch(self) -> None:
        while True:
            assert self.process is not None
            assert self.process.stdout is not None
            await self._print_lines(self.process.stdout)
            await self.process.wait()
            if not self._restarts:
                return
            await asyncio.sleep(_RESTART_SECONDS)
            await self._start()


class _Tasks(SpecCluster):
    """A scheduler and the processes of the tasks, each of which watches itself."""

    def _update_worker_status(self, op: str, msg: Any) -> None:
        # SpecCluster would close a task for good that is not back within a quarter of a minute,
        # which a process takes to start on a busy machine.
        Cluster._update_worker_status(self, op, msg)


@final
class ParameterServerCluster:
    """Workers and parameter servers on this machine; `dl.launch` makes it.

    Each is a process. A worker that ends is started again; a parameter server is not, as its
    variables are lost.

    Attributes:
      client: The client of Dask's scheduler.
      resolver: What `ParameterServerStrategy` is made of.
      workers: The number of workers.
      parameter_servers: The number of parameter servers.
    """

    def __init__(self, workers: int, parameter_servers: int) -> None:
        """Starts the processes, and waits until all have come.

        Args:
          workers: The number of workers.
          parameter_servers: The number of parameter servers.

        Raises:
          ClusterError: They did not start in time.
        """
        self.workers = workers
        self.parameter_servers = parameter_servers
        names = [f"worker-{n}" for n in range(workers)]
        names += [f"ps-{n}" for n in range(parameter_servers)]
        tasks = {
            name: {
                "cls": _TaskProcess,
                "options": {"name": name, "restarts": name.startswith("worker")},
            }
            for name in names
        }
        options = {
            "host": _HOST,
            "port": 0,
            "dashboard": False,
            "dashboard_address": f"{_HOST}:0",
        }
        self._log_level = _log.level
        _log.setLevel(logging.CRITICAL + 1)  # what matters of it is raised
        with dask.config.set(SETTINGS):
            self._cluster: Any = _Tasks(  # type: ignore[no-untyped-call]
                workers=tasks,
                scheduler={"cls": Scheduler, "options": options},
                name="distlab",
                silence_logs=logging.ERROR,
            )
            self.client = Client(self._cluster)
        atexit.register(self.stop)
        try:
            self.client.wait_for_workers(len(names), timeout=_START_SECONDS)
        except TimeoutError as error:
            self.stop()
            raise ClusterError(
                f"{len(names)} processes did not start within {_START_SECONDS:g} s. Look at what "
                "they printed, and start fewer of them."
            ) from error
        self.resolver = DaskClusterResolver(self.client, workers, parameter_servers)

    def kill(self, job: str, index: int) -> None:
        """Kills the process of a task, as a failure would; a worker comes back.

        Args:
          job: `"worker"` or `"ps"`.
          index: Its number in the job.

        Raises:
          ArgumentValueError: There is no such task.
        """
        process = self._process(job, index)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        self._cluster.sync(process.wait)

    def pid(self, job: str, index: int) -> int:
        """Returns the process id of a task."""
        pid: int = self._process(job, index).pid
        return pid

    def stop(self) -> None:
        """Ends all processes."""
        atexit.unregister(self.stop)
        if self.client.status == "running":
            self.client.sync(lose_all, self.client)
        self.client.close(timeout=_STOP_SECONDS)
        self._cluster.close(timeout=_STOP_SECONDS)
        _log.setLevel(self._log_level)

    def _process(self, job: str, index: int) -> Any:
        task = self._cluster.workers.get(f"{job}-{index}")
        if task is None:
            raise ArgumentValueError(
                f"The cluster has {self.workers} workers and {self.parameter_servers} parameter "
                f"servers, and no {job} {index}. Count from 0, with the job 'worker' or 'ps'."
            )
        return task.process

    def __enter__(self) -> Self:
        """Returns the cluster."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ends all processes."""
        self.stop()

    def __reduce__(self) -> Any:
        """Travels to workers as an object that only the coordinator has."""
        return CoordinatorsOwn, (repr(self),)

    def __repr__(self) -> str:
        """Returns the numbers of tasks."""
        return f"ParameterServerCluster({self.workers} workers, {self.parameter_servers} servers)"
