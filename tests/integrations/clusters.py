"""Starts and stops a cluster of a notebook, which must leave nothing behind."""

from __future__ import annotations

import psutil
import pytest

import distlab as dl
from distlab.errors import ClusterError
from distlab.integrations.ipyparallel.cluster import Cluster
from tests.launching.real_processes import is_gone, wait_for


def processes_of(cluster: Cluster) -> set[int]:
    roots = {*cluster._engines._watched, cluster._warden._process.pid}
    if cluster._service is not None:
        roots.add(cluster._service.pid)
    living = [psutil.Process(pid) for pid in roots if psutil.pid_exists(pid)]
    children = [child for root in living for child in root.children(recursive=True)]
    return {process.pid for process in (*living, *children)}


def ports_of(pids: set[int]) -> set[int]:
    listening = (one for one in psutil.net_connections("inet") if one.status == psutil.CONN_LISTEN)
    return {one.laddr.port for one in listening if one.pid in pids}


def start_and_stop() -> None:
    with dl.launch(workers=2) as cluster:
        assert cluster.run(abs, -1) == [1, 1]
        stop_and_leave_nothing(cluster)


def stop_and_leave_nothing(cluster: Cluster) -> None:
    started = processes_of(cluster)
    assert len(started) > 4
    assert ports_of(started)
    cluster.stop()
    wait_for(lambda: all(is_gone(pid) for pid in started), "the end of all processes")
    assert ports_of(started) == set()
    with pytest.raises(ClusterError, match="was stopped"):
        cluster.run(abs, -1)
