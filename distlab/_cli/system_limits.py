"""What the system refuses a process, told in words: files, threads, memory, a home, a folder."""

from __future__ import annotations

import errno
import os
from typing import Final

_PROCESSES: Final = (
    "The system lets this user start no more processes and threads. End some, or raise the limit "
    "(ulimit -u)."
)
_MEMORY: Final = "There is no memory left. End other programs, or raise the limit (ulimit -v)."
_NO_HOME: Final = (
    "This user has no home folder, where packages look for their settings. Set HOME to a folder."
)
_NO_FOLDER: Final = (
    "The working directory does not exist any more, and packages look for it. Change to one that "
    "does."
)
_OF_SYSTEM: Final = {
    errno.EAGAIN: _PROCESSES,
    errno.EMFILE: "This process may open no more files. Raise the limit (ulimit -n).",
    errno.ENFILE: "The system opens no more files. End programs that hold many.",
    errno.ENOMEM: _MEMORY,
}
_OF_PYTHON: Final = {
    "can't start new thread": _PROCESSES,
    "Could not determine home directory.": _NO_HOME,
}


def refusal(error: BaseException) -> str | None:
    """Returns what the system refused and what to do, None where an error has another cause."""
    if isinstance(error, MemoryError):
        return _MEMORY
    if isinstance(error, FileNotFoundError) and _is_nowhere():
        return _NO_FOLDER
    if isinstance(error, OSError):
        return _OF_SYSTEM.get(error.errno or 0)
    # Python has no types of their own for these.
    return _OF_PYTHON.get(str(error))


def _is_nowhere() -> bool:
    """Returns whether the working directory was deleted."""
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return True
    return False
