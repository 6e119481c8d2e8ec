"""Joining the processes of a cluster, and leaving them, through `jax.distributed`."""

from __future__ import annotations

import atexit
import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

import jax
import jax.extend.backend
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from distlab.devices import in_flight, jax_internals, selection, thread_pool
from distlab.errors import BackendStartedError, ClusterError, ProgramOrderError, WorkerError
from distlab.processes import failures, gloo_sockets, group, meeting
from distlab.processes.group import LEFT, ProcessGroup, Worker
from distlab.processes.meeting import Hello, Service
from distlab.processes.notices import announced
from distlab.processes.order_guard import OrderGuard
from distlab.processes.starting import Start, without_proxy
from distlab.processes.watching import Watcher

START_SECONDS: Final = 300.0
"""The limit of waits for the others' start; `DISTLAB_START_SECONDS` sets another one."""

_HEARTBEAT_SECONDS: Final = 30
_CONNECT_SECONDS: Final = 60.0
_END_SECONDS: Final = 60.0
"""The chief, which serves the others, stays so long for those that still run at its end."""
_END_AFTER_ERROR_SECONDS: Final = 30.0
"""The same after an error: the others learn of it at once, and may save before they end."""
_LOST_SECONDS: Final = 3.0
"""The same for the process that failed: it ends now, unless it was stopped."""
_POLL_SECONDS: Final = 0.01
_COUNT_FLAG: Final = "xla_force_host_platform_device_count"
_TIMEOUT_FLAG: Final = "--xla_cpu_collective_timeout_seconds"


def join(
    addresses: Sequence[str],
    tasks: Sequence[str],
    index: int,
    *,
    cpu_devices: int,
    timeout: float | None = None,
) -> ProcessGroup:
    """Joins the processes of a cluster. Must come before JAX starts its devices."""
    names = list(tasks)
    joined = group.current()
    if joined is not None:
        if [worker.task for worker in joined.workers] == names and joined.index == index:
            _require_equal_numbers(joined)
            return joined
        raise ClusterError(
            f"A process belongs to one cluster, and this one has joined {joined!r}. Use the "
            "strategy of that cluster, or another process."
        )
    if jax_internals.coordination_client() is not None:
        raise ClusterError(
            "JAX is connected to other processes already, by jax.distributed.initialize. Leave "
            "that call out: the MultiWorkerMirroredStrategy makes it, with the cluster's tasks."
        )
    if jax_internals.backend_started():
        raise BackendStartedError(
            "A process joins its cluster before JAX starts its devices, and something was computed "
            "before the MultiWorkerMirroredStrategy was made. Make the strategy first, as in "
            "TensorFlow."
        )
    generation = int(os.environ.get("DISTLAB_GENERATION", "0"))
    limit = start_limit()
    hello = _hello(index, names, generation)
    hosted = os.environ.get("DISTLAB_COORDINATOR")
    service: Service | None = None
    if index == 0:
        met, links, service = meeting.as_chief(addresses[0], hello, names, limit)
    else:
        met, link = meeting.as_worker(addresses[0], hello, limit)
        links = [link]
    with Start(names, index, links, max(limit, _CONNECT_SECONDS)) as start:
        _configure(cpu_devices, timeout)
        if service is not None and not hosted:
            _services.append(start.serve(service.bound))
        address = hosted or met.service
        with without_proxy(meeting.host_of(address)):
            start.run(lambda: jax_internals.connect(address, len(names), index, _HEARTBEAT_SECONDS))
        before = gloo_sockets.listening()
        with jax_internals.gloo_listening("127.0.0.1" if met.one_machine else None):
            start.run(jax.devices)
        start.run(_meet_on_devices)
        gloo = gloo_sockets.listening() - before
        counts = _devices_of_each(len(names))
        workers = tuple(
            Worker(n, name, said.host, said.pid, counts[n])
            for n, (name, said) in enumerate(zip(names, met.hellos, strict=True))
        )
        made = ProcessGroup(
            index, workers, generation=generation, links=tuple(links), timeout=timeout
        )
        texts = start.run(
            lambda: made.exchange("addresses", json.dumps(sorted(gloo)), _CONNECT_SECONDS)
        )
    group.become(made)
    _register_end()
    failures.watch_uncaught_errors()
    jax_internals.read_within(failures.reading)
    of_all = {(host, port) for text in texts for host, port in json.loads(text)}
    _watchers.extend([Watcher(made, of_all), OrderGuard(made)])
    _require_equal_numbers(made)
    return made


def leave(seconds: float = _END_SECONDS) -> None:
    """Leaves the processes, the chief as the last one; `join` may follow in a new generation."""
    left = group.current()
    if left is None:
        return
    _stop_watching(left)
    group.become(None)
    if left.is_chief and not _is_hosted():
        _await_others(left, seconds)
    jax.distributed.shutdown()
    jax.extend.backend.clear_backends()
    in_flight.begin_anew()  # what failed in the old generation must not fail in the new one
    for service in _services:
        service.kill()
        service.wait()
    _services.clear()
    gloo_sockets.close()
    for link in left.links:  # which the chief awaits
        link.close()


def _await_others(left: ProcessGroup, seconds: float) -> None:
    """Waits, within a limit, until the other processes have left or ended."""
    began = time.monotonic()
    failure = _loss(left)
    remaining = dict(zip(left.others, left.links, strict=True))

    def waits_for() -> str:
        return f"{', '.join(worker.name for worker in remaining)} to end"

    with announced(waits_for, seconds):
        while remaining and (waited := time.monotonic() - began) < seconds:
            for worker, link in list(remaining.items()):
                is_lost = failure is not None and worker.name == failure.worker
                if meeting.has_closed(link) or (is_lost and waited > _LOST_SECONDS):
                    del remaining[worker]
            time.sleep(_POLL_SECONDS)


def _loss(left: ProcessGroup) -> WorkerError | None:
    """Returns why a worker was lost; one that parted from the order of programs lives."""
    return None if isinstance(left.failure, ProgramOrderError) else left.failure


def _at_end() -> None:
    """Waits for this process's own steps; the chief serves the others until they have ended."""
    left = group.current()
    if left is None:
        return
    in_flight.finish()
    _stop_watching(left)
    if left.is_chief and not _is_hosted():
        failed = getattr(sys, "last_value", None) is not None or _loss(left) is not None
        _await_others(left, _END_AFTER_ERROR_SECONDS if failed else _END_SECONDS)
        for service in _services:
            service.terminate()  # it ends with this process, after JAX has disconnected
            service.returncode = 0  # nobody waits for it
    gloo_sockets.close()
    for link in left.links:
        link.detach()  # the end of the process closes it, after JAX has disconnected


def _stop_watching(left: ProcessGroup) -> None:
    """Notes for all that this process comes to no further collective."""
    while _watchers:
        _watchers.pop().stop()
    failures.note(left, LEFT, left.index, "")


def _is_hosted() -> bool:
    """Returns whether another process than the chief has the coordination service."""
    return bool(os.environ.get("DISTLAB_COORDINATOR"))


_watchers: list[Watcher | OrderGuard] = []
_services: list[subprocess.Popen[bytes]] = []
"""The process that serves the coordination, where this one is the chief and started it."""

_registered = False


def _register_end() -> None:
    global _registered
    if not _registered:
        _registered = True
        atexit.register(_at_end)


def _hello(index: int, names: list[str], generation: int) -> Hello:
    same = {
        "cluster": names,
        "version of distlab": importlib.metadata.version("distlab"),
        "version of JAX": jax.__version__,
        "DISTLAB_COORDINATOR": os.environ.get("DISTLAB_COORDINATOR"),
        "generation": generation,
    }
    return Hello(index, socket.gethostname(), os.getpid(), same)


def _configure(cpu_devices: int, timeout: float | None) -> None:
    """Sets what JAX and XLA read once, when the devices start."""
    if _COUNT_FLAG not in os.environ.get("XLA_FLAGS", ""):  # JAX takes one of them
        jax.config.update("jax_num_cpu_devices", cpu_devices)
    elif thread_pool.devices_to_come() != cpu_devices:
        raise BackendStartedError(
            f"XLA_FLAGS asks for {thread_pool.devices_to_come()} CPU devices with {_COUNT_FLAG}, "
            f"and each worker is to have {cpu_devices}. Remove it from XLA_FLAGS."
        )
    threads = thread_pool.needed(max(cpu_devices, 2))
    if thread_pool.size(cpu_devices) < threads:
        os.environ["PJRT_NPROC"] = str(threads)
    if timeout is not None:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} {_TIMEOUT_FLAG}={max(1, round(timeout))}".strip()
    selection.prepare_cpu_backend()


def _meet_on_devices() -> None:
    """Connects the devices by a first collective: in a later one Gloo waits 30 s for the others."""
    mesh = Mesh(np.array(jax.devices()), "all")
    ones = jax.make_array_from_callback(
        (mesh.size,), NamedSharding(mesh, PartitionSpec("all")), lambda _: np.ones(1, np.float32)
    )
    jax.jit(jnp.sum)(ones).block_until_ready()


def _devices_of_each(processes: int) -> list[int]:
    counts = [0] * processes
    for device in jax.devices():
        counts[device.process_index] += 1
    return counts


def _require_equal_numbers(joined: ProcessGroup) -> None:
    """Checks that all processes have the same number of devices, as TensorFlow requires."""
    if len({worker.devices for worker in joined.workers}) > 1:
        of_each = ", ".join(f"{worker.name} {worker.devices}" for worker in joined.workers)
        raise ClusterError(
            f"All workers must have the same number of devices, got {of_each}. Give each as many "
            "(devices_per_worker= on CPUs, CUDA_VISIBLE_DEVICES on GPUs)."
        )


def start_limit() -> float:
    """Returns how many seconds to wait until other processes have started."""
    return float(os.environ.get("DISTLAB_START_SECONDS") or START_SECONDS)
