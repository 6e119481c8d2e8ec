"""Synchronous training on several workers, each a process of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

import jax

from distlab.cluster.resolver import ClusterResolver
from distlab.cluster.tf_config import TFConfigClusterResolver
from distlab.context.communication import CommunicationOptions
from distlab.devices import jax_internals, selection, thread_pool
from distlab.errors import (
    ArgumentTypeError,
    BackendStartedError,
    ClusterSpecError,
    DeviceError,
)
from distlab.processes import joining
from distlab.step.programs.place import Place
from distlab.strategies.abstract import Strategy
from distlab.strategies.divided import DividedVariables
from distlab.text.counts import is_positive_count
from distlab.text.shown import shown

_DEVICES: Final = "DISTLAB_DEVICES_PER_WORKER"
_JOBS: Final = ("chief", "worker")


class MultiWorkerMirroredStrategy(Strategy):
    """The replicas of several workers in sync (`tf.distribute.MultiWorkerMirroredStrategy`).

    Each worker is a process that runs the same program, on one machine or on several. The first
    strategy joins them: it waits until all have started, and connects JAX. So make it before
    anything is computed, as in TensorFlow. Without a cluster, or with a cluster of one worker,
    the same program runs in one process.

    A worker uses all its accelerators. One that has none uses one CPU device, as in TensorFlow,
    unless `devices_per_worker` says otherwise.

    Args:
      cluster_resolver: The resolver of the cluster; by default the environment
        variable `TF_CONFIG` describes it.
      communication_options: Options of collectives between workers. After `timeout_seconds` a
        collective fails that other workers did not come to; the other options are hints.
      devices_per_worker: The number of CPU devices of each worker; by default that of the
        environment variable `DISTLAB_DEVICES_PER_WORKER`, then, in a cluster of several workers,
        the number that `use_cpu_devices` or JAX's settings ask for, then 1.
      shard_variables: Whether variables are divided over the replicas of all workers, as in
        `MirroredStrategy`: True, or the least number of bytes of one that is.

    Raises:
      ArgumentTypeError: `cluster_resolver` is not a `ClusterResolver`.
      ClusterSpecError: The cluster does not name this process's task.
      ClusterError: Another worker does not start in time, or does not fit.
      BackendStartedError: JAX has started its devices before the workers could be joined.
      DeviceError: `devices_per_worker` is not a number of CPU devices.
      ArgumentValueError: `shard_variables` is neither a bool nor a positive number.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MultiWorkerMirroredStrategy()
      >>> strategy
      MultiWorkerMirroredStrategy(CPU:0)
      >>> strategy.cluster_resolver.cluster_spec()
      ClusterSpec({})
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        communication_options: CommunicationOptions | None = None,
        *,
        devices_per_worker: int | None = None,
        shard_variables: bool | int = False,
    ) -> None:
        divided = DividedVariables(shard_variables)
        resolver = TFConfigClusterResolver() if cluster_resolver is None else cluster_resolver
        if not isinstance(resolver, ClusterResolver):
            raise ArgumentTypeError(
                "cluster_resolver must be a ClusterResolver or None, got a "
                f"{type(resolver).__name__}. Leave it out to read TF_CONFIG."
            )
        asked = _asked_devices(devices_per_worker)
        tasks = _tasks(resolver)
        self._resolver = resolver
        if tasks.index is None:
            devices = _devices_of_one_worker(asked)
        else:
            devices = _joined_devices(tasks, asked, communication_options or CommunicationOptions())
        super().__init__(Place.on(devices, self.kind, divides=divided.least is not None))
        self.divided = divided

    @property
    def cluster_resolver(self) -> Any:
        """The resolver of the cluster."""
        return self._resolver


@dataclass(frozen=True)
class _Tasks:
    """The tasks of a program, the chief first; `index` is None for a process that runs alone."""

    names: list[str]
    addresses: list[str]
    index: int | None


def _tasks(resolver: ClusterResolver) -> _Tasks:
    """Returns the chief and the workers of a cluster; an evaluator runs alone, as in TensorFlow."""
    cluster = resolver.cluster_spec()
    named = {
        (job, index): cluster.task_address(job, index)
        for job in _JOBS
        if job in cluster.jobs
        for index in cluster.task_indices(job)
    }
    own = (resolver.task_type, resolver.task_id)
    if not cluster:
        return _Tasks([], [], None)
    if None in own:
        raise ClusterSpecError(
            "A cluster must name this process's task: task_type and task_id are "
            f"{own[0]!r} and {own[1]!r}. Set TF_CONFIG's task, or pass "
            "task_type='worker' and task_id=0 to the resolver."
        )
    names = [f"{job}:{index}" for job, index in named]
    if own[0] == "evaluator":
        return _Tasks(names, list(named.values()), None)
    if own not in named:
        raise ClusterSpecError(
            f"The cluster has the tasks {names}, and this process is {own[0]}:{own[1]}. Set "
            "TF_CONFIG's task to one of them."
        )
    if len(named) < 2:
        return _Tasks(names, list(named.values()), None)
    return _Tasks(names, list(named.values()), list(named).index(own))


def _asked_devices(given: int | None) -> int | None:
    """Returns the number of CPU devices that the argument or the environment asks for."""
    text = os.environ.get(_DEVICES)
    what = "devices_per_worker" if given is not None else _DEVICES
    number: Any = given if given is not None else text
    if number is None:
        return None
    if given is None and text is not None and text.strip().isdecimal():
        number = int(text)
    if not is_positive_count(number):
        raise DeviceError(
            f"{what} must be a whole number of CPU devices, at least 1, got {shown(number)}. "
            "Leave it out for one."
        )
    return int(number)


def _devices_of_one_worker(asked: int | None) -> list[jax.Device]:
    to_come = None if jax_internals.backend_started() else thread_pool.devices_to_come()
    if asked is not None and to_come is not None and to_come < asked:
        jax.config.update("jax_num_cpu_devices", asked)
    local = selection.available()
    if local[0].platform != "cpu":
        _require_cpu(asked, local)
        return local
    if asked is not None and asked > len(local):
        raise BackendStartedError(
            f"The worker was to have {shown(asked)} CPU devices, and JAX runs with {len(local)}. "
            "Make the strategy before anything is computed."
        )
    return local[: asked or 1]


def _joined_devices(
    tasks: _Tasks, asked: int | None, options: CommunicationOptions
) -> list[jax.Device]:
    """Joins the other workers, and returns the devices of all of them."""
    assert tasks.index is not None
    group = joining.join(
        tasks.addresses,
        tasks.names,
        tasks.index,
        cpu_devices=asked or thread_pool.devices_to_come(),
        timeout=options.timeout_seconds,
    )
    local = group.local_devices
    _require_cpu(asked, local)
    return sorted(jax.devices(), key=lambda device: (device.process_index, device.id))


def _require_cpu(asked: int | None, local: Any) -> None:
    if asked is not None and local[0].platform != "cpu":
        raise DeviceError(
            f"devices_per_worker divides a machine's CPU, and this worker has {len(local)} "
            f"{local[0].platform.upper()} device(s), all of which it uses. Leave it out; "
            "CUDA_VISIBLE_DEVICES chooses among GPUs."
        )
