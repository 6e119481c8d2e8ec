"""The coordination service of `jax.distributed`, in a process that is no worker.

A worker that hosts the service takes all others with it: JAX aborts them within 0.1 s. With the
service here every worker may be lost, and the others go on in Python.

It outlives a chief that started it and was killed, by the time in which the others may save and
end. After SIGTERM it ends with the chief.

Workers connect by `devices.jax_internals.connect`. This process imports jaxlib alone: with JAX it
would start 0.8 s later and hold half as much memory again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

from jaxlib import _jax

HEARTBEAT_SECONDS = 30
SHUTDOWN_SECONDS = 5
AFTER_CHIEF_SECONDS = 30.0
POLL_SECONDS = 0.2


def main() -> None:
    """Serves until it is killed. Arguments: the address, the number of workers, the chief's pid."""
    private: Any = _jax
    service = private.get_distributed_runtime_service(
        sys.argv[1],
        int(sys.argv[2]),
        heartbeat_timeout=HEARTBEAT_SECONDS,
        shutdown_timeout=SHUTDOWN_SECONDS,
        recoverable=True,
    )
    if len(sys.argv) <= 3:
        threading.Event().wait()
    has_ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: has_ended.set())
    while os.getppid() == int(sys.argv[3]):
        time.sleep(POLL_SECONDS)
    has_ended.wait(AFTER_CHIEF_SECONDS)
    os._exit(0 if service else 1)  # the end of the service would wait for its clients


if __name__ == "__main__":
    main()
