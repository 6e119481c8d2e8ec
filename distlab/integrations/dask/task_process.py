"""The process of a worker or a parameter server: `python -m ...task_process SCHEDULER NAME`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Final

import dask
from distributed import Worker

from distlab.errors import ClusterError
from distlab.integrations.dask.settings import SETTINGS

_SCHEDULER_SECONDS: Final = 120

_SWITCH_SECONDS: Final = 0.0005
"""Python's 5 ms would let a message wait that long for a closure that computes, at each read."""


def join_scheduler(scheduler: str, name: str, host: str | None = None) -> None:
    """Serves a Dask cluster until its scheduler ends, or the connection to it."""
    dask.config.set(SETTINGS)
    sys.setswitchinterval(_SWITCH_SECONDS)
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    asyncio.run(_serve(scheduler, name, host))


async def _serve(scheduler: str, name: str, host: str | None) -> None:
    try:
        worker = await Worker(
            scheduler,
            name=name,
            nthreads=1,
            memory_limit=0,
            dashboard=False,
            host=host,
            death_timeout=_SCHEDULER_SECONDS,
        )
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        raise ClusterError(
            f"{name} did not join the Dask cluster at {scheduler} within {_SCHEDULER_SECONDS} s: "
            f"{error}. Look whether its scheduler runs there, and has no worker of that name."
        ) from error
    await worker.finished()


def main() -> None:
    """Serves the scheduler of this machine that the arguments name."""
    scheduler, name = sys.argv[1:]
    try:
        join_scheduler(scheduler, name, "127.0.0.1")
    finally:
        os._exit(0)  # a closure may run in another thread, and nobody waits for it


if __name__ == "__main__":
    main()
