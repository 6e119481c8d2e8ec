"""Asynchronous training: independent workers, with variables on parameter servers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final

import jax

from distlab.cluster import server
from distlab.cluster.resolver import ClusterResolver
from distlab.cluster.spec import ClusterSpec
from distlab.context.modes import RunOptions
from distlab.devices import selection
from distlab.devices.layouts import Layout, NewVariable, OnOneDevice
from distlab.errors import (
    ArgumentTypeError,
    ClusterError,
    ClusterSpecError,
)
from distlab.step import runner
from distlab.step.programs.place import Place
from distlab.strategies.abstract import Strategy
from distlab.strategies.dealing import Dealing
from distlab.strategies.remote_tasks import CoordinatedTasks, RemoteTasks, connected
from distlab.strategies.workers import RemoteWorkers, ThreadWorkers, Workers
from distlab.text.shown import shown
from distlab.variables.remote_storage import ValueServers
from distlab.variables.sharded_variable import ShardedVariable
from distlab.variables.variable import Variable

_JOBS: Final = ("chief", "worker", "ps", "evaluator")


class ParameterServerStrategy(Strategy):
    """Workers that do not wait for one another (`tf.distribute.ParameterServerStrategy`).

    Variables are placed on the parameter servers' devices in turn. A
    `ClusterCoordinator` schedules functions on the workers; each runs one replica
    on its device, reads the variables' present values, and sends its update
    back. Updates are applied one after another, so none is lost.

    Where this process has made a `Server` for every worker and parameter server,
    as in TensorFlow's guide, a worker is a thread with a device. Where it has made
    none, they are processes that listen at the cluster's addresses
    (`Server.join`, `distlab server`), and are waited for, 5 minutes or
    `DISTLAB_START_SECONDS`. A Dask client names
    processes, too.

    Threads that are workers use the first devices, parameter servers the next ones (the
    host's CPU devices where there are accelerators); tasks share devices where
    there are fewer devices than tasks.

    Args:
      cluster_resolver: The resolver of the cluster, with at least one task in each of
        the jobs `worker` and `ps`, and at most one `chief`.
      variable_partitioner: Called with the `shape` and `dtype` of each new variable that has
        rows, it returns the number of parts along each axis; more than one along the first make a
        `ShardedVariable` of variables on the servers in turn. One of
        `distlab.experimental.partitioners`, or None, which leaves variables whole.

    Raises:
      ArgumentTypeError: `cluster_resolver` is not a `ClusterResolver`.
      ClusterSpecError: The cluster has no worker or no parameter server, more
        than one chief, or other jobs.
      ClusterError: Some tasks have a server in this process and some have not; or a process
        does not listen in time, is another task or has other versions.
      MissingExtraError: Tasks are in other processes, and Dask is not installed.

    Example:
      >>> import distlab as dl
      >>> cluster = dl.ClusterSpec({"worker": ["a:2101", "b:2101"], "ps": ["c:2101"]})
      >>> for job, n in [("worker", 0), ("worker", 1), ("ps", 0)]:
      ...     _ = dl.Server(cluster, job_name=job, task_index=n)
      >>> resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
      >>> dl.ParameterServerStrategy(resolver)
      ParameterServerStrategy(2 workers, 1 servers)
    """

    keeps_one_copy: ClassVar[bool] = True

    def __init__(
        self,
        cluster_resolver: ClusterResolver | Any,
        variable_partitioner: Callable[..., Any] | None = None,
    ) -> None:
        self._coordinated = connected(cluster_resolver)
        self._resolver: Any = cluster_resolver
        cluster = None
        if self._coordinated is None:
            cluster = _cluster_of(cluster_resolver)
            if not _is_here(cluster):
                _require_chief(cluster_resolver)
                self._coordinated = connected(cluster)
        self._tasks: RemoteTasks | None = self._coordinated
        if self._coordinated is not None:
            self._begin(self._coordinated, None, variable_partitioner)
            self._coordinated.attach(self)
            return
        assert cluster is not None
        workers, servers = cluster.num_tasks("worker"), cluster.num_tasks("ps")
        self._dealing = Dealing(servers, variable_partitioner)
        devices = selection.available()
        homes = devices if devices[0].platform == "cpu" else jax.local_devices(backend="cpu")
        first_home = workers if homes is devices else 0
        self._homes = [homes[(first_home + n) % len(homes)] for n in range(servers)]
        places = [
            Place.on([devices[n % len(devices)]], f"{self.kind} worker {n}") for n in range(workers)
        ]
        super().__init__(places[0])
        self._places = places
        self._workers: Workers = ThreadWorkers(places)

    @classmethod
    def in_worker(cls, tasks: RemoteTasks, number: int) -> ParameterServerStrategy:
        """Returns the strategy of a coordinator in another process, as its worker has it.

        Args:
          tasks: The tasks, as the worker knows them.
          number: The worker's number.
        """
        strategy = cls.__new__(cls)
        strategy._resolver = strategy._coordinated = None
        strategy._begin(tasks, number, None)
        return strategy

    def _begin(
        self, tasks: RemoteTasks, own: int | None, partitioner: Callable[..., Any] | None
    ) -> None:
        """Takes part in a cluster of processes, as its coordinator or as one of its workers."""
        which = "coordinator" if own is None else f"worker {own}"
        place = Place.on(selection.available()[:1], f"{self.kind} {which}")
        super().__init__(place)
        self._tasks = tasks
        self._homes = []
        self._dealing = Dealing(len(tasks.servers), partitioner)
        self._workers = RemoteWorkers(place, tasks.workers, own)

    @property
    def tasks(self) -> CoordinatedTasks | None:
        """The tasks in other processes that this one coordinates; None when they are threads."""
        return self._coordinated

    @property
    def value_servers(self) -> ValueServers | None:
        """The parameter servers of other processes that hold variables; None without any."""
        return None if self._tasks is None else self._tasks.values

    @property
    def place(self) -> Place:
        """The place of the worker that the calling thread runs; elsewhere the first one."""
        return self._workers.place

    @property
    def num_workers(self) -> int:
        """The number of workers."""
        return len(self._workers)

    @property
    def cluster_resolver(self) -> Any:
        """The resolver of the cluster."""
        return self._resolver

    @property
    def reads_here(self) -> bool:
        """True in a thread of a worker: each worker reads its own datasets."""
        return self._workers.current is not None

    @property
    def parameter_device_names(self) -> tuple[str, ...]:
        """The devices of the parameter servers."""
        return (
            tuple(map(selection.name, self._homes)) if self._tasks is None else self._tasks.servers
        )

    @contextlib.contextmanager
    def as_worker(self, number: int) -> Iterator[None]:
        """Makes the calling thread run as a worker, for a block of code.

        Args:
          number: The worker's number.
        """
        with self._workers.acting_as(number), self.scope():
            yield

    def variable_layout(self, *, per_replica: bool, of: NewVariable | None = None) -> Layout:
        """Returns one copy on the next parameter server's device."""
        del per_replica, of  # there is one replica in sync, so one copy
        server = self._dealing.next_server()
        return OnOneDevice(None if self._tasks is not None else self._homes[server], server)

    def make_variable(
        self, make: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]
    ) -> Any:
        """Returns a new variable, in parts where the partitioner divides it."""
        return self._dealing.made(make, arguments)

    def beside(
        self, variable: Variable | ShardedVariable
    ) -> contextlib.AbstractContextManager[None]:
        """Puts the variables that are made in a block on the parameter servers of another one."""
        return self._dealing.beside(variable)

    def _run(
        self, fn: Callable[..., Any], args: Any, kwargs: Any, options: RunOptions | None
    ) -> Any:
        """Runs `fn` on the worker's one replica; other threads wait for an eager function."""
        alone = self._tasks is None
        return runner.run(self, self.place, fn, args, kwargs, options=options, alone=alone)

    def __repr__(self) -> str:
        """Returns the numbers of tasks."""
        servers = len(self.parameter_device_names)
        return f"ParameterServerStrategy({self.num_workers} workers, {servers} servers)"


def _cluster_of(resolver: Any) -> ClusterSpec:
    if not isinstance(resolver, ClusterResolver):
        raise ArgumentTypeError(
            "ParameterServerStrategy needs a ClusterResolver that names its workers and "
            f"parameter servers, got a {type(resolver).__name__}. Use "
            "SimpleClusterResolver(ClusterSpec({'worker': [...], 'ps': [...]}))."
        )
    cluster = resolver.cluster_spec()
    odd = [job for job in cluster.jobs if job not in _JOBS]
    counts = {job: len(cluster.as_dict().get(job, ())) for job in _JOBS}
    if odd or not counts["worker"] or not counts["ps"] or counts["chief"] > 1:
        raise ClusterSpecError(
            "A cluster with parameter servers has at least one task in each of the jobs 'worker' "
            f"and 'ps', at most one 'chief' and no job but {list(_JOBS)}, got "
            f"{shown(cluster, 400)}. Name the missing tasks in the ClusterSpec."
        )
    return cluster


def _is_here(cluster: ClusterSpec) -> bool:
    """Returns whether this process has made the servers of all tasks; false when it made none."""
    tasks = [
        (job, index, cluster.task_address(job, index))
        for job in ("worker", "ps")
        for index in cluster.task_indices(job)
    ]
    absent = [task for task in tasks if server.running_at(task[2]) is None]
    if absent and len(absent) < len(tasks):
        job, index, address = absent[0]
        raise ClusterError(
            "Either all workers and parameter servers are in this process, or none, and "
            f"{job} {index} at {address} is not. Make distlab.Server(cluster, "
            f"job_name={job!r}, task_index={index}) first; or stop() the servers of this process, "
            "and start each in its own."
        )
    return not absent


def _require_chief(resolver: ClusterResolver) -> None:
    if resolver.task_type in ("worker", "ps"):
        raise ClusterError(
            f"This process is {resolver.task_type} {resolver.task_id} of the cluster, and the "
            "chief makes the ParameterServerStrategy. Call distlab.Server(resolver.cluster_spec(), "
            f"{resolver.task_type!r}, {resolver.task_id}).join() here."
        )
