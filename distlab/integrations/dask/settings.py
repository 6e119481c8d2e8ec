"""How Dask is set up in the processes that distlab starts."""

from __future__ import annotations

from typing import Any, Final

SETTINGS: Final[dict[str, Any]] = {
    # A process that is stopped is lost after that time, or after twice as long.
    "distributed.scheduler.worker-ttl": "25 s",
    "distributed.comm.timeouts.connect": "10 s",
    "distributed.comm.retry.count": 0,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.worker.multiprocessing.initialize": [],
}
"""Names and values of `dask.config`."""
