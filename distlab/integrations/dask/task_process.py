"""The process of a worker or a parameter server: `python -m ...task_process SCHEDULER NAME`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

import dask
from distributed import Worker

from distlab.integrations.dask.settings import SETTINGS


async def _serve(scheduler: str, name: str) -> None:
    worker = await Worker(
        scheduler, name=name, nthreads=1, memory_limit=0, dashboard=False, host="127.0.0.1"
    )
    await worker.finished()


def main() -> None:
    """Serves until the scheduler ends, or its connection."""
    scheduler, name = sys.argv[1:]
    dask.config.set(SETTINGS)
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    try:
        asyncio.run(_serve(scheduler, name))
    finally:
        os._exit(0)  # a closure may run in another thread, and nobody waits for it


if __name__ == "__main__":
    main()
