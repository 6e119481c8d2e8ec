"""Finds processes that wait for each other at different lines of their programs.

Each whose threads have all waited for others for some seconds publishes for whom, and the line of
its program. Those that wait for nobody else than each other will never go on, so all raise a
`ProgramOrderError`. Whoever computes, reads or is late waits for nobody, and is waited for.
"""

from __future__ import annotations

import time
from operator import is_not
from typing import Final, final

import msgspec

from distlab.devices import dispatch_order, in_flight
from distlab.devices.thread_frames import frames_of
from distlab.processes.failures import part
from distlab.processes.group import ProcessGroup, Wait
from distlab.threads import DEVICES, waited_for, working
from distlab.user_code import line_of

_PUBLISHED: Final = "waits"
"""The folder of the key-value store that has the waiting processes, by process."""

_QUIET_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 1.0
"""All are seen waiting twice, so far apart: who went on has taken back what it published."""


class _Waiting(msgspec.Struct, frozen=True):
    """A process all of whose threads wait, at a line and a place of its program.

    On texts of others, and where `devices` is true on programs after those it has `handed_over`.
    """

    number: int
    line: str
    place: str
    texts: list[Wait]
    devices: bool
    handed_over: int


@final
class WaitGuard:
    """Watches the waits of one process, and compares them with those of the others."""

    def __init__(self, processes: ProcessGroup) -> None:
        self._processes = processes
        self._key = f"{_PUBLISHED}/{processes.index}"
        self._waits: list[object] = []
        self._since = self._looked = 0.0
        self._number = self._handed_over = 0
        self._published = False
        self._seen: dict[int, _Waiting] = {}

    def look(self) -> None:
        """Publishes what this process waits for, or compares it; called several times a second."""
        now = time.monotonic()
        waits = _waits()
        if (
            dispatch_order.handed_over != self._handed_over
            or len(waits) != len(self._waits)
            or any(map(is_not, waits, self._waits))
        ):
            self._handed_over = dispatch_order.handed_over
            self._waits, self._since, self._seen = waits, now, {}
            if self._published:
                self._processes.kv.delete(self._key)
                self._published = False
        elif waits and not self._published and now - self._since >= _QUIET_SECONDS:
            self._publish()
        elif self._published and now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._compare()

    def _publish(self) -> None:
        self._number += 1
        thread = dispatch_order.program_thread()
        frames = frames_of(thread.ident or 0)
        on = self._waits[0]
        said = _Waiting(
            self._number,
            line_of(frames[0] if frames else None),
            on.place if isinstance(on, Wait) else str(on),
            [wait for wait in self._waits if isinstance(wait, Wait)],
            DEVICES in self._waits,
            dispatch_order.handed_over,
        )
        self._processes.kv.set(self._key, msgspec.json.encode(said).decode(), overwrite=True)
        self._published = True

    def _compare(self) -> None:
        kv = self._processes.kv
        stuck = _stuck(
            {
                int(index): msgspec.json.decode(text, type=_Waiting)
                for index, text in kv.below(_PUBLISHED).items()
            }
        )
        seen, self._seen = self._seen, stuck
        if self._processes.index not in stuck or seen != stuck:
            return
        if any(kv.find(wait.key) is not None for said in stuck.values() for wait in said.texts):
            return
        workers = self._processes.workers
        places = ", ".join(
            f"{workers[index].name} at {said.line or 'its end'} ({said.place})"
            for index, said in sorted(stuck.items())
        )
        message = (
            "All workers must make the same calls in the same order, and these wait for each "
            f"other: {places}. Make each call on all workers, or on none."
        )
        part(self._processes, workers[max(stuck)], message, dispatch_order.handed_over + 1)


def _waits() -> list[object]:
    """Returns what the threads wait for; empty while one of them works."""
    own = _programs_wait()
    try:
        others = [waited_for(thread) for thread in working if thread.is_alive()]
    except RuntimeError:  # one has just begun
        return []
    return [] if None in (own, *others) else [own, *others]


def _programs_wait() -> object | None:
    """Returns what the thread that hands programs over waits for."""
    wait = waited_for(dispatch_order.program_thread())
    return DEVICES if wait is None and in_flight.is_dispatching() else wait


def _stuck(said: dict[int, _Waiting]) -> dict[int, _Waiting]:
    """Returns the processes that wait for nobody but each other."""
    left = dict(said)
    while True:
        fewest = min((each.handed_over for each in left.values()), default=0)
        free = [
            index
            for index, each in left.items()
            if any(wait.worker not in left for wait in each.texts)
            or (each.devices and each.handed_over <= fewest)
        ]
        if not free:
            return left
        for index in free:
            del left[index]
