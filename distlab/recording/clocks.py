"""The offset of a process's monotonic clock from that of process 0.

Processes of one boot of one machine read the same clock. Between machines, all of them read
their clocks just before and just after they meet, several times: what one read before lies, in
time, before what another read after. So each meeting gives a lowest and a highest offset, and the
one where they are closest counts. Clocks drift apart, so this is done again once a minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from distlab.errors import DistlabError
from distlab.processes.group import ProcessGroup
from distlab.threads import Thread

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_READINGS: Final = 8
_EVERY_SECONDS: Final = 60.0
_MEETING_SECONDS: Final = 2.0
"""The longest wait for the others once a minute; they may have ended their recording."""


class Clock(NamedTuple):
    """Nanoseconds to add to a clock to get that of process 0, and their largest error.

    The error is 0 where both are one clock.
    """

    offset_ns: int = 0
    error_ns: int = 0


def boot_id() -> str:
    """Returns what identifies the present boot of this machine; empty where it is not known."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def compared(processes: ProcessGroup, name: str, timeout: float) -> Clock:
    """Compares this process's clock with that of process 0. All processes call it together."""
    boots = processes.exchange(f"{name}, boot", boot_id(), timeout)
    if boots[0] and len(set(boots)) == 1:
        return Clock()
    before, after = [], []
    for _ in range(_READINGS):
        now_ns = time.monotonic_ns()
        texts = processes.exchange(f"{name}, clock", str(now_ns), timeout)
        after.append(time.monotonic_ns())
        before.append((now_ns, int(texts[0])))
    text = " ".join(map(str, after))
    of_first = map(int, processes.exchange(f"{name}, times", text, timeout)[0].split())
    if boots[0] and boots[0] == boots[processes.index]:
        return Clock()
    lowest_to_highest = (
        (first_before - own_after, first_after - own_before)
        for (own_before, first_before), own_after, first_after in zip(
            before, after, of_first, strict=True
        )
    )
    low, high = min(lowest_to_highest, key=lambda ends: ends[1] - ends[0])
    return Clock((low + high) // 2, max(1, (high - low + 1) // 2))


class ClockWatch:
    """Compares clocks every so many seconds, until `stop`; its thread passes `note` each result."""

    def __init__(
        self,
        processes: ProcessGroup,
        name: str,
        note: Callable[[Clock], None],
        every: float = _EVERY_SECONDS,
    ) -> None:
        self._processes = processes
        self._name = name
        self._note = note
        self._every = every
        self._ending = threading.Event()
        self._thread = Thread(self._watch, name="distlab clock")
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; waits for a comparison that is being made."""
        self._ending.set()
        self._thread.join()

    def _watch(self) -> None:
        number, began = 1, time.monotonic()
        while not self._ending.wait(max(0.0, began + number * self._every - time.monotonic())):
            try:
                clock = compared(self._processes, f"{self._name}, {number}", _MEETING_SECONDS)
            except DistlabError:  # the others came too late, have ended their recording or are lost
                clock = Clock()
            if clock.error_ns:
                self._note(clock)
            number += 1
