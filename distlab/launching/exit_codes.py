"""Descriptions of exit codes."""

from __future__ import annotations

import signal
from typing import Final

_CAUSES: Final = {
    signal.SIGABRT: "JAX aborts a process when another one, or the coordinator, is lost",
    signal.SIGKILL: "by somebody, or by the kernel when memory ran out",
    signal.SIGSEGV: "it used memory that is not its own: a bug in compiled code",
    signal.SIGBUS: "shared memory or a mapped file ended too early",
}
_VERBS: Final = {
    signal.SIGABRT: "was aborted",
    signal.SIGINT: "was interrupted",
    signal.SIGSEGV: "crashed",
    signal.SIGTERM: "was terminated",
}


def described(code: int) -> str:
    """Returns what an exit code says, as the end of a sentence about the process."""
    if code == 0:
        return "ended"
    if code > 0:
        return f"failed with exit code {code}"
    try:
        number = signal.Signals(-code)
    except ValueError:  # a real-time signal has no name
        return f"was killed (signal {-code})"
    cause = f": {_CAUSES[number]}" if number in _CAUSES else ""
    return f"{_VERBS.get(number, 'was killed')} ({number.name}, {code}{cause})"


def in_short(code: int) -> str:
    """Returns what an exit code says in a few words, for a table."""
    if code >= 0:
        return f"process ended with exit code {code}"
    try:
        return f"process ended by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"process ended by signal {-code}"


def for_shell(code: int) -> int:
    """Returns the exit code that a shell gives for a process: 128 and the signal's number."""
    return 128 - code if code < 0 else code
