"""The size of XLA's thread pool for CPU devices, set before JAX starts them.

Every step needs a thread on each device, and what a step calls on the host, such as
`jax.pure_callback`, needs others: with fewer than two threads for each device, programs
with collectives can deadlock. XLA reads the size once, from `PJRT_NPROC`.

`import distlab` comes here, so JAX is not imported.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Final

_COUNT: Final = re.compile(
    r"""--xla_force_host_platform_device_count[=\s]\s*["']?\s*\+?(\d+)"""  # quotes are XLA's
)


def devices_to_come() -> int:
    """Returns the number of CPU devices that JAX will start, by flags or by its setting."""
    return max(_by_flags(), _by_setting(), 1)


def needed(devices: int) -> int:
    """Returns the threads that so many devices need."""
    return 2 * devices


def size(devices: int) -> int:
    """Returns the threads that XLA makes for so many devices."""
    for name in ("PJRT_NPROC", "NPROC"):
        number = os.environ.get(name, "").strip()
        if number.isdigit():
            return max(int(number), devices)
    return max(_cores(), devices)


def enlarge() -> bool:
    """Sets the size that the devices to come need; a larger one that is set stays."""
    devices = devices_to_come()
    if devices < 2:
        return False
    threads = max(needed(devices), _cores())
    set_by_user = os.environ.get("PJRT_NPROC", "")
    if not set_by_user.isdigit() or int(set_by_user) < threads:
        os.environ["PJRT_NPROC"] = str(threads)
    return True


def enlarge_at_import() -> None:
    """Sets the size, unless JAX may have started its devices already."""
    if "jax" not in sys.modules:
        enlarge()
        return
    from distlab.devices.jax_internals import backend_started

    if not backend_started():
        enlarge()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _by_flags() -> int:
    counts = _COUNT.findall(os.environ.get("XLA_FLAGS", ""))
    return int(counts[-1]) if counts else 0


def _by_setting() -> int:
    config: Any = getattr(sys.modules.get("jax"), "config", None)
    if config is not None:
        return int(getattr(config, "jax_num_cpu_devices", -1))
    number = os.environ.get("JAX_NUM_CPU_DEVICES", "").strip()
    return int(number) if number.isdigit() else 0
