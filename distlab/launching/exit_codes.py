"""Descriptions of exit codes."""

from __future__ import annotations

import signal
from typing import Final

_CAUSES: Final[dict[int, str]] = {
    signal.SIGABRT: ": JAX aborts a process when another one, or the coordinator, is lost",
    signal.SIGKILL: ": by someone, or by the kernel because memory ran out",
}


def described(code: int) -> str:
    """Returns what an exit code says, as the end of a sentence about the process."""
    if code >= 0:
        return f"failed with exit code {code}" if code else "ended"
    return f"was killed by {_name(-code)}{_CAUSES.get(-code, '')}"


def in_short(code: int) -> str:
    """Returns what an exit code says in a few words, for a table."""
    how = f"with exit code {code}" if code >= 0 else f"by {_name(-code)}"
    return f"process ended {how}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"


def for_shell(code: int) -> int:
    """Returns the exit code that a shell gives for a process: 128 and the signal's number."""
    return 128 - code if code < 0 else code
