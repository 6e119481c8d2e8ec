"""How Dask is set up in the processes that distlab starts."""

from __future__ import annotations

from typing import Any, Final

SETTINGS: Final[dict[str, Any]] = {
    "distributed.scheduler.worker-ttl": "30 s",  # a process that is stopped is lost then
    "distributed.comm.timeouts.connect": "10 s",
    "distributed.comm.retry.count": 0,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.worker.multiprocessing.initialize": [],
}
"""Names and values of `dask.config`."""
