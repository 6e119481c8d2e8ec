"""Files that a process locks for as long as it writes something."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def is_locked(path: Path) -> bool:
    """Returns whether a living process holds a lock file."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # it may be a pipe
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(lock)
    return False
