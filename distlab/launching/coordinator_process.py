"""The coordination service of `jax.distributed`, in a process that is no worker.

A worker that hosts the service takes all others with it: JAX aborts them within 0.1 s. With the
service here every worker may be lost, and the others go on in Python.

Workers connect by `devices.jax_internals.connect`. This process imports jaxlib alone: with JAX it
would start 0.8 s later and hold half as much memory again.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from jaxlib import _jax

HEARTBEAT_SECONDS = 30
SHUTDOWN_SECONDS = 5


def main() -> None:
    """Serves until it is killed. Arguments: the address, the number of workers."""
    private: Any = _jax
    service = private.get_distributed_runtime_service(
        sys.argv[1],
        int(sys.argv[2]),
        heartbeat_timeout=HEARTBEAT_SECONDS,
        shutdown_timeout=SHUTDOWN_SECONDS,
        recoverable=True,
    )
    threading.Event().wait()
    del service


if __name__ == "__main__":
    main()
