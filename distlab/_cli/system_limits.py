"""What the system refuses a process, told in words: files, processes, threads, memory."""

from __future__ import annotations

import errno
from typing import Final

_PROCESSES: Final = (
    "The system lets this user start no more processes and threads. End some, or raise the limit "
    "(ulimit -u)."
)
_MEMORY: Final = "There is no memory left. End other programs, or raise the limit (ulimit -v)."
_OF_SYSTEM: Final = {
    errno.EAGAIN: _PROCESSES,
    errno.EMFILE: "This process may open no more files. Raise the limit (ulimit -n).",
    errno.ENFILE: "The system opens no more files. End programs that hold many.",
    errno.ENOMEM: _MEMORY,
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
    # Python has no type of its own for this one.
    return _PROCESSES if str(error) == "can't start new thread" else None
