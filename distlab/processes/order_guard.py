"""Compares the order in which the processes hand programs over to their devices.

A collective meets whichever collective the other processes are at. Where the processes hand over
different programs, numbers are silently wrong, or all deadlock. So the chief passes on the programs
that it hands over, in order, and each other process compares them with its own, in a thread of its
own. The first difference is a `ProgramOrderError` in all processes. So are waits for each other.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import deque
from queue import Empty
from typing import Final, final

from distlab.devices import dispatch_order
from distlab.devices.dispatch_order import Dispatch
from distlab.errors import ClusterError
from distlab.processes.failures import part
from distlab.processes.group import ProcessGroup
from distlab.processes.wait_guard import WaitGuard
from distlab.threads import Thread

_TICK_SECONDS: Final = 0.25
_KEPT_CHUNKS: Final = 2000
"""The messages of the chief that stay for processes that are late: those of 8 minutes."""


@final
class OrderGuard:
    """Watches the order of the programs of one generation."""

    def __init__(self, processes: ProcessGroup) -> None:
        self._processes = processes
        self._noted = dispatch_order.watch()
        self._own: deque[Dispatch] = deque()
        self._chiefs: deque[Dispatch] = deque()
        self._compared = 0
        self._chunk = 0
        self._waits = WaitGuard(processes)
        self._stop = threading.Event()
        self._thread = Thread(self._watch, name="distlab order")
        self._thread.start()

    def stop(self) -> None:
        """Ends the comparison."""
        self._stop.set()
        self._thread.join()
        dispatch_order.end()

    def _watch(self) -> None:
        # Without the coordination service there is nobody to compare with.
        with contextlib.suppress(ClusterError):
            while not self._stop.wait(_TICK_SECONDS) and self._processes.failure is None:
                self.look()
                self._waits.look()

    def look(self) -> None:
        """Passes on, or compares, what was handed over since the last time."""
        fresh = self._new()
        if self._processes.is_chief:
            self._pass_on(fresh)
        else:
            self._own += fresh
            self._receive()
            self._compare()

    def _new(self) -> list[Dispatch]:
        found: list[Dispatch] = []
        with contextlib.suppress(Empty):
            while True:
                found.append(self._noted.get_nowait())
        return found

    def _pass_on(self, fresh: list[Dispatch]) -> None:
        if not fresh:
            return
        kv = self._processes.kv
        kv.set(f"order/{self._chunk}", json.dumps(fresh))
        if self._chunk >= _KEPT_CHUNKS:
            kv.delete(f"order/{self._chunk - _KEPT_CHUNKS}")
        self._chunk += 1

    def _receive(self) -> None:
        while (text := self._processes.kv.find(f"order/{self._chunk}")) is not None:
            self._chunk += 1
            self._chiefs += [Dispatch(*each) for each in json.loads(text)]

    def _compare(self) -> None:
        while self._own and self._chiefs:
            own, chiefs = self._own.popleft(), self._chiefs.popleft()
            self._compared += 1
            if own.fingerprint != chiefs.fingerprint:
                worker = self._processes.worker
                what = (
                    f"as {chiefs.name} as the chief, but with other shapes or collectives"
                    if own.name == chiefs.name
                    else f"where the chief ran {chiefs.name}"
                )
                message = (
                    f"All workers must run the same programs in the same order, and at program "
                    f"{self._compared} it ran {own.name} {what}. What was computed from there on "
                    "is not to be trusted. Call run, reduce and gather alike on all workers."
                )
                part(self._processes, worker, message, self._compared)
                self._stop.set()
                return
