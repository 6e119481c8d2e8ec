"""Servers: the tasks of a cluster that this process plays."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, final

from distlab.cluster.spec import ClusterSpec
from distlab.errors import ClusterError, ClusterSpecError
from distlab.text.shown import shown

_LOCAL_JOB: Final = "local"
_local_numbers = itertools.count()
_running: dict[str, Server] = {}
_lock = threading.Lock()
serving: Final[list[Callable[[Server, threading.Event], None]]] = []
"""Serve a task to other processes until the event is set; the integration with Dask adds it."""


@final
class Server:
    """One task of a cluster, in this process (`tf.distribute.Server`).

    In a process of its own, a worker or a parameter server makes its server and
    calls `join()`, which listens at the task's address; the chief's program makes
    a `ParameterServerStrategy` of the same cluster, which connects to all of them.
    It may start before them or after. So does the command `distlab server`.

    Where one process makes the servers of all workers and parameter servers, as
    in the in-process cluster of TensorFlow's guide, the workers of a
    `ParameterServerStrategy` are threads of it with a device each, and nothing
    listens at the addresses.

    Args:
      server_or_cluster_def: The cluster, or an argument of `ClusterSpec`.
      job_name: The task's job; may be left out when there is only one.
      task_index: Its index; may be left out when the job has only one task.
      protocol: The protocol in `target`.
      config: Accepted for compatibility with TensorFlow, and ignored.
      start: Whether to start at once.

    Attributes:
      cluster: The cluster.
      job_name: The task's job.
      task_index: Its index in that job.
      address: Its address.
      target: Its address with the protocol.

    Raises:
      ClusterSpecError: The cluster has no such task, or it has several and none is
        named.
      ClusterError: A server runs at that address.

    Example:
      >>> import distlab as dl
      >>> cluster = dl.ClusterSpec({"worker": ["a:2222", "b:2222"], "ps": ["c:2222"]})
      >>> server = dl.Server(cluster, job_name="worker", task_index=1)
      >>> server.target
      'grpc://b:2222'
      >>> server.stop()
    """

    def __init__(  # noqa: PLR0917  # the order is TensorFlow's
        self,
        server_or_cluster_def: ClusterSpec | Mapping[str, Any],
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: object = None,
        start: bool = True,
    ) -> None:
        del config
        self.cluster = ClusterSpec(server_or_cluster_def)
        self.job_name = _only("job_name", job_name, self.cluster.jobs)
        indices = self.cluster.task_indices(self.job_name)
        self.task_index = _only("task_index", task_index, indices)
        self.address = self.cluster.task_address(self.job_name, self.task_index)
        self.target = f"{protocol or 'grpc'}://{self.address}"
        self._stopped = threading.Event()
        if start:
            self.start()

    @staticmethod
    def create_local_server(config: object = None, start: bool = True) -> Server:
        """Returns a server of a cluster of one task, with an address of its own.

        Example:
          >>> import distlab as dl
          >>> server = dl.Server.create_local_server()
          >>> server.job_name, server.task_index
          ('local', 0)
          >>> server.stop()
        """
        address = f"local:{next(_local_numbers)}"
        return Server({_LOCAL_JOB: [address]}, config=config, start=start)

    def start(self) -> None:
        """Assigns the address to this process. Starting twice does nothing.

        Raises:
          ClusterError: Another server runs there.
        """
        with _lock:
            if _running.setdefault(self.address, self) is not self:
                raise ClusterError(
                    f"Each task has an address of its own, and {_running[self.address]!r} runs at "
                    f"{self.address}. Give the task another port, or stop() that server."
                )
            self._stopped.clear()

    def stop(self) -> None:
        """Releases the address, and ends `join()`. Strategies of this process go on."""
        with _lock:
            if _running.get(self.address) is self:
                del _running[self.address]
        self._stopped.set()

    def join(self) -> None:
        """Serves other processes: listens at the address until the process ends.

        A worker runs what a `ClusterCoordinator` in another process schedules, in a thread of its
        own; a parameter server holds variables. When the coordinator ends, they wait for the next
        one. After `stop()` it returns at once, until `start()`. An address whose host is
        `localhost` or a loopback address is listened at on this machine only, others on all of its
        interfaces, as in TensorFlow. Whoever can connect can run code here, unless Dask's
        configuration asks for TLS.

        Raises:
          ClusterSpecError: The task is neither a worker nor a parameter server, or its address
            has no port.
          PortInUseError: Another process listens at the address.
          ClusterError: The address can't be listened at.
          MissingExtraError: Dask is not installed.
        """
        if self._stopped.is_set():
            return
        self.start()
        (serve,) = serving
        serve(self, self._stopped)

    def __repr__(self) -> str:
        """Names the task and its address."""
        return f"Server({self.job_name} {self.task_index} at {self.address})"


def running_at(address: str) -> Server | None:
    """Returns the server that this process runs at an address, if it does."""
    with _lock:
        return _running.get(address)


def _only(what: str, given: Any, known: list[Any]) -> Any:
    if given is None and len(known) == 1:
        return known[0]
    if not isinstance(given, str | int) or given not in known:
        raise ClusterSpecError(
            f"{what} must be one of {known}, got {shown(given)}. Pass one where there are several."
        )
    return given
