"""A cluster of this machine: workers and parameter servers that Dask starts as processes."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
from typing import Any, Final, Self, final

import dask
from distributed import Client, Scheduler
from distributed.security import Security

from distlab.errors import ClusterError, MissingExtraError
from distlab.integrations.dask.connection import SETTINGS
from distlab.integrations.dask.local_tasks import LocalTasks, TaskProcess
from distlab.integrations.dask.members import lose_all
from distlab.integrations.dask.pickling import CoordinatorsOwn
from distlab.integrations.dask.resolver import DaskClusterResolver

_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 10
_HOST: Final = "127.0.0.1"
_log: Final = logging.getLogger("distributed")


@final
class ParameterServerCluster:
    """Workers and parameter servers on this machine; `dl.launch` makes it.

    Each is a process. A worker that ends is started again; a parameter server is not, as its
    variables are lost. They speak TLS with keys made for this cluster, so that another user of the
    machine can't take part.

    Attributes:
      client: The client of Dask's scheduler.
      resolver: The argument of `ParameterServerStrategy`.
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
          MissingExtraError: cryptography is not installed.
        """
        try:
            security = Security.temporary()
        except ImportError as error:
            raise MissingExtraError(
                "distlab.launch protects parameter servers with cryptography, which is not "
                "installed. Run: pip install 'distlab[cluster]'."
            ) from error
        role = security.get_tls_config_for_role("worker")
        keys = {f"tls_worker_{part}": role[part] for part in ("cert", "key")}
        keys["tls_ca_file"] = role["ca_file"]
        self.workers = workers
        self.parameter_servers = parameter_servers
        names = [f"worker-{n}" for n in range(workers)]
        names += [f"ps-{n}" for n in range(parameter_servers)]
        tasks = {
            name: {
                "cls": TaskProcess,
                "options": {"name": name, "restarts": name.startswith("worker"), "keys": keys},
            }
            for name in names
        }
        options = {
            "protocol": "tls",
            "security": security,
            "host": _HOST,
            "port": 0,
            "dashboard": False,
            "dashboard_address": f"{_HOST}:0",
        }
        self._log_level = _log.level
        _log.setLevel(logging.CRITICAL + 1)  # what matters of it is raised
        with dask.config.set(SETTINGS):
            self._cluster: Any = LocalTasks(  # type: ignore[no-untyped-call]
                workers=tasks,
                scheduler={"cls": Scheduler, "options": options},
                security=security,
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
            self.client.sync(lose_all, self.client.rpc)
        self.client.close(timeout=_STOP_SECONDS)
        self._cluster.close(timeout=_STOP_SECONDS)
        _log.setLevel(self._log_level)

    def _process(self, job: str, index: int) -> Any:
        return self._cluster.workers[f"{job}-{index}"].process

    def __enter__(self) -> Self:
        """Returns the cluster."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all processes."""
        self.stop()

    def __reduce__(self) -> Any:
        """Travels to workers as an object that only the coordinator has."""
        return CoordinatorsOwn, (repr(self),)

    def __repr__(self) -> str:
        """Returns the numbers of tasks."""
        return f"ParameterServerCluster({self.workers} workers, {self.parameter_servers} servers)"
