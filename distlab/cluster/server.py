"""Servers: the tasks of a cluster that this process stands in for."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from typing import Any, Final, final

from distlab.cluster.spec import ClusterSpec
from distlab.errors import ClusterError, ClusterSpecError, UnsupportedError

_LOCAL_JOB: Final = "local"
_local_numbers = itertools.count()
_running: dict[str, Server] = {}
_lock = threading.Lock()


@final
class Server:
    """One task of a cluster, in this process (`tf.distribute.Server`).

    TensorFlow's server answers other processes. This one makes its task's
    address one of this process, for a `ParameterServerStrategy` whose workers
    are threads with a device each: the in-process cluster of TensorFlow's
    guide runs as it stands. Nothing listens on the address.

    Args:
      server_or_cluster_def: the cluster, or what `ClusterSpec` takes.
      job_name: the task's job; may be left out when there is only one.
      task_index: its index; may be left out when the job has only one task.
      protocol: what `target` has in front of the address.
      config: taken for TensorFlow's sake.
      start: whether to start at once.

    Attributes:
      cluster: the cluster.
      job_name: the task's job.
      task_index: its index in that job.
      address: its address.
      target: its address with the protocol.

    Raises:
      ClusterSpecError: the cluster has no such task, or it does not follow
        which one is meant.
      ClusterError: a server runs at that address.
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
        if start:
            self.start()

    @staticmethod
    def create_local_server(config: object = None, start: bool = True) -> Server:
        """Makes a server of a cluster of one task, with an address of its own."""
        address = f"local:{next(_local_numbers)}"
        return Server({_LOCAL_JOB: [address]}, config=config, start=start)

    def start(self) -> None:
        """Makes the address one of this process. Does nothing when it is.

        Raises:
          ClusterError: another server runs there.
        """
        with _lock:
            if _running.setdefault(self.address, self) is not self:
                raise ClusterError(
                    f"Each task has an address of its own, and {_running[self.address]!r} runs at "
                    f"{self.address}. Give the task another port, or stop() that server."
                )

    def stop(self) -> None:
        """Gives the address up. Strategies that were made before go on."""
        with _lock:
            if _running.get(self.address) is self:
                del _running[self.address]

    def join(self) -> None:
        """Refuses: no other process can reach this one, so that it would wait for good.

        Raises:
          UnsupportedError: always.
        """
        raise UnsupportedError(
            f"{self!r} serves this process only, so there is nothing to wait for. Make all servers "
            "of the cluster in the process that makes the ParameterServerStrategy, and leave "
            "join() out."
        )

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
    if given is None:
        raise ClusterSpecError(
            f"{what} must be given, as there is not just one: it is one of {known}."
        )
    if given not in known:
        raise ClusterSpecError(f"{what} must be one of {known}, got {given!r}.")
    return given
