"""The environment of a worker process, and its limits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

MOST: Final = 4096
"""The most workers, and devices of one: more is a slip that would take all memory."""

DEVICES: Final = "DISTLAB_DEVICES_PER_WORKER"
"""The number of CPU devices of each worker; without it the strategy's default."""

COORDINATOR: Final = "DISTLAB_COORDINATOR"
"""The address of a coordination service that none of the workers hosts."""

GENERATION: Final = "DISTLAB_GENERATION"
"""The number of restarts of the cluster so far."""

LOST: Final = "DISTLAB_LOST"
"""The file in which the launcher notes the first process that failed."""

COLLECTOR: Final = "DISTLAB_COLLECTOR"
"""Host, port and key of a process that writes the run files of all workers."""


def for_worker(
    index: int,
    addresses: Sequence[str],
    *,
    inherited: Mapping[str, str],
    coordinator: str | None = None,
    devices: int | None = None,
    generation: int = 0,
    collector: str | None = None,
    lost: str | None = None,
) -> dict[str, str]:
    """Returns the environment of one worker of a cluster."""
    config = {
        "cluster": {"worker": list(addresses)},
        "task": {"type": "worker", "index": index},
    }
    own = {
        "TF_CONFIG": json.dumps(config),
        DEVICES: None if devices is None else str(devices),
        COORDINATOR: coordinator,
        GENERATION: str(generation),
        COLLECTOR: collector,
        LOST: lost,
        "PYTHONUNBUFFERED": "1",  # lines are passed on when they are printed
    }
    kept = {name: value for name, value in inherited.items() if name not in own}
    return {**kept, **{name: value for name, value in own.items() if value is not None}}
