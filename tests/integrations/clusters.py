"""Starts and stops a cluster of a notebook, which must leave nothing behind."""

from __future__ import annotations

import psutil
import pytest

import distlab as dl
from distlab.errors import ClusterError
from tests.launching.real_processes import is_gone, wait_for


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def ports_of(pids: set[int]) -> set[int]:
    listening = (one for one in psutil.net_connections("inet") if one.status == psutil.CONN_LISTEN)
    return {one.laddr.port for one in listening if one.pid in pids}


def start_and_stop() -> None:
    before = children()
    with dl.launch(workers=2) as cluster:
        assert cluster.run(abs, -1) == [1, 1]
        started = children() - before
        assert len(started) > 4
        assert ports_of(started)
    wait_for(lambda: all(is_gone(pid) for pid in started), "the end of all processes")
    assert ports_of(started) == set()
    with pytest.raises(ClusterError, match="was stopped"):
        cluster.run(abs, -1)
