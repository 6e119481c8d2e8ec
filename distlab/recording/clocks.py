"""How far a process's monotonic clock is behind that of process 0.

Processes of one boot of one machine read the same clock. Between machines, all of them read
their clocks just after a barrier, several times: they leave it within a tenth of a millisecond.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Final, NamedTuple, Protocol

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_READINGS: Final = 8


class Clock(NamedTuple):
    """A clock beside that of process 0.

    Attributes:
      offset_ns: Nanoseconds to add to it to get that of process 0.
      error_ns: The largest error of this offset; 0 where both are one clock.
    """

    offset_ns: int = 0
    error_ns: int = 0


class Processes(Protocol):
    """What is asked of the processes that run one program together."""

    @property
    def index(self) -> int:
        """The number of this process."""

    def exchange(self, name: str, text: str, timeout: float | None = None) -> list[str]:
        """Returns the texts of all processes."""

    def barrier(self, name: str, timeout: float | None = None) -> None:
        """Waits until all processes are there."""


def boot_id() -> str:
    """Returns what identifies the present boot of this machine; empty where it is not known."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def compared(processes: Processes, name: str, timeout: float) -> Clock:
    """Compares this process's clock with that of process 0. All processes call it together.

    Args:
      processes: The processes.
      name: The name under which they meet.
      timeout: The seconds to wait for the others.

    Raises:
      WorkerError: A process did not come in time, or is lost.
    """
    boots = processes.exchange(f"{name}, boot", boot_id(), timeout)
    if boots[0] and len(set(boots)) == 1:
        return Clock()
    behind = []
    for _ in range(_READINGS):
        processes.barrier(f"{name}, clock", timeout)
        now_ns = time.monotonic_ns()
        texts = processes.exchange(f"{name}, time", str(now_ns), timeout)
        behind.append(int(texts[0]) - now_ns)
    if boots[0] and boots[0] == boots[processes.index]:
        return Clock()
    offset_ns = round(statistics.median(behind))
    return Clock(offset_ns, max(1, *(abs(one - offset_ns) for one in behind)))
