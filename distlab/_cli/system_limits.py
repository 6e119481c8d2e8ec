"""What the system refuses a process, told in words: files, processes, threads, memory, a home."""

from __future__ import annotations

import errno
from typing import Final

_PROCESSES: Final = (
    "The system lets this user start no more processes and threads. End some, or raise the limit "
    "(ulimit -u)."
)
_MEMORY: Final = "There is no memory left. End other programs, or raise the limit (ulimit -v)."
_NO_HOME: Final = (
    "This user has no home folder, where packages look for their settings. Set HOME to a folder."
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
    """Returns what the system refused and what to do, None where an error has another cause.

    Args:
      error: What a command raised.

    Example:
      >>> import errno
      >>> from distlab._cli.system_limits import refusal
      >>> refusal(OSError(errno.EMFILE, "Too many open files"))
      'This process may open no more files. Raise the limit (ulimit -n).'
    """
    if isinstance(error, MemoryError):
        return _MEMORY
    if isinstance(error, OSError):
        return _OF_SYSTEM.get(error.errno or 0)
    # Python has no types of their own for these.
    return _OF_PYTHON.get(str(error))
