"""Files that a process locks for as long as it writes something."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from io import FileIO
from pathlib import Path


def opened_lock(path: Path) -> FileIO:
    """Opens a lock file for writing; what a folder from elsewhere holds in its place is refused."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        lock = FileIO(path, "a+", opener=lambda name, mode: os.open(name, mode | flags, 0o666))
        if stat.S_ISREG(os.fstat(lock.fileno()).st_mode):
            return lock
        lock.close()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    raise OSError(errno.EEXIST, f"{path.name} in it is a link or no regular file")


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
