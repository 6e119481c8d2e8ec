"""Memory in use by the process and on its devices."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import jax

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def process_memory_bytes() -> int:
    """Returns the resident memory of this process; its peak where only that is known."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def device_memory_bytes(devices: Sequence[jax.Device]) -> list[int] | None:
    """Returns the memory in use on each device, None where JAX does not report it (CPU)."""
    stats = [device.memory_stats() for device in devices]
    used = [None if stat is None else stat.get("bytes_in_use") for stat in stats]
    known = [int(number) for number in used if number is not None]
    return known if known and len(known) == len(used) else None
