"""The process that writes a process's run file: itself, the chief, or the cluster's launcher.

Processes that see the chief's folder write their own files there. Others send their events: to
the process that started the cluster where that takes them (`DISTLAB_COLLECTOR`), else to the
chief, over a connection that the chief offers in the key-value store.
"""

from __future__ import annotations

import atexit
import os
import secrets
from pathlib import Path
from typing import Final, NamedTuple

from distlab.processes.group import ProcessGroup
from distlab.runs.collector import Collector
from distlab.runs.run_file import RunFile, file_of, lock_path

_END_SECONDS: Final = 30.0
"""The longest wait of the chief at its end for those whose files it writes."""

_collector: Collector | None = None


class Place(NamedTuple):
    """A process that takes events.

    Attributes:
      host: Its machine.
      port: The port at which it listens.
      key: What it asks for.
    """

    host: str
    port: int
    key: str


def of_launcher() -> Place | None:
    """Returns who started the cluster, if it takes events."""
    words = os.environ.get("DISTLAB_COLLECTOR", "").split()
    return Place(words[0], int(words[1]), words[2]) if len(words) == 3 else None


def offered(joined: ProcessGroup) -> tuple[int, str]:
    """Returns the port and the key under which the chief takes events of other machines."""
    global _collector
    if len({worker.host for worker in joined.workers}) == 1:
        return 0, ""
    if _collector is None:
        addresses = {link.getsockname()[0] for link in joined.links}
        _collector = Collector(addresses.pop() if len(addresses) == 1 else "")
        atexit.register(_collector.close, _END_SECONDS)
    return _collector.port, _collector.key


def of_chief(joined: ProcessGroup, port: int, key: str) -> Place | None:
    """Returns the chief as one that takes events; None if it takes none."""
    return Place(joined.links[0].getpeername()[0], port, key) if port else None


def mark(file: RunFile) -> str:
    """Marks the chief's file, and returns the mark by which others know it."""
    text = secrets.token_hex(16)
    lock_path(file.path).write_text(text)
    return text


def is_marked(folder: Path, text: str) -> bool:
    """Returns whether a folder is that of the chief, which marked its file."""
    try:
        return lock_path(file_of(folder)).read_text() == text
    except OSError:
        return False
