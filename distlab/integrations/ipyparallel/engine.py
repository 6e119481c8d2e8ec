"""Functions that the notebook's process calls in the engines."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping

from distlab.launching.ports import Ports

_ports: Ports | None = None


def place() -> tuple[str, int, int]:
    """Returns this machine's name, a port that is kept for the worker, and the process's id."""
    global _ports
    if _ports is not None:
        _ports.close()
    _ports = Ports(1)
    return socket.gethostname(), _ports.numbers[0], os.getpid()


def enter(environment: Mapping[str, str], paths: list[str]) -> None:
    """Makes this engine a worker of a cluster, which the strategy joins."""
    from distlab.launching import environment as names

    for name in (names.DEVICES, names.COORDINATOR, names.COLLECTOR):
        os.environ.pop(name, None)
    os.environ.update(environment)
    sys.path += [path for path in paths if path not in sys.path]


def leave() -> None:
    """Leaves the cluster of the generation before; the interpreter keeps what it has."""
    if "jax" in sys.modules:
        from distlab.processes import joining

        joining.leave(seconds=2.0)


def tell(message: str) -> bool:
    """Publishes to the other workers that this one has failed."""
    if "distlab.processes.group" not in sys.modules:
        return False
    from distlab.processes import failures, group

    failures.publish(message)
    return group.current() is not None
