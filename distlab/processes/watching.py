"""A thread that finds lost processes, and ends the steps that wait for them.

Ten times a second it reads what others have published of their failures, looks whether the
connections to the chief are open, and twice a second it shows that this process lives.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from distlab.devices import dispatch_order
from distlab.errors import DistlabError
from distlab.processes import gloo_sockets, meeting
from distlab.processes.failures import ALIVE, FAILED, note, noted
from distlab.processes.gloo_sockets import Address
from distlab.processes.group import LEFT, ProcessGroup, Worker
from distlab.threads import Thread

_POLL_SECONDS: Final = 0.1
_BEAT_SECONDS: Final = 0.5
_SILENT_SECONDS: Final = 30.0
"""A process may show no sign of life so long, where no shorter time was asked for."""
_LEAST_SILENT_SECONDS: Final = 3.0
"""The least limit: Python code can keep a process from showing that it lives."""
_AFTER_LEAVING_SECONDS: Final = 5.0
"""Steps go on so long that another process has done before it ended its program."""


class Watcher:
    """Watches the other processes of a group until `stop`."""

    def __init__(self, group: ProcessGroup, addresses: set[Address]) -> None:
        self._group = group
        self._addresses = addresses
        asked = min(_SILENT_SECONDS, group.timeout or _SILENT_SECONDS)
        self._limit = max(_LEAST_SILENT_SECONDS, asked)
        self._stopped = threading.Event()
        self._beaten = 0.0
        self._beats: dict[int, tuple[str, float]] = {}
        self._left: dict[int, float] = {}  # since when
        self._thread = Thread(self._watch, name="distlab watcher")
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(_POLL_SECONDS):
            try:
                self._look()
            except DistlabError:  # the coordination service is gone, and JAX ends this process
                continue

    def _look(self) -> None:
        group = self._group
        now = time.monotonic()
        if now - self._beaten >= _BEAT_SECONDS:
            self._beaten = now
            beat = f"{dispatch_order.handed_over} {now:.1f}"
            group.kv.set(f"{ALIVE}/{group.index}", beat, overwrite=True)
            self._find_silent(group.kv.below(ALIVE), now)
        closed = self._closed_links()
        # Read after the connections, and in this order: a process notes its failure, then its
        # leave, and then ends.
        left = group.kv.below(LEFT)
        failure = noted(group)
        if failure is not None:
            group.fail(failure)
        for worker in group.others:
            if str(worker.index) in left:
                self._end_steps_later(worker, now)
            elif worker in closed and group.failure is None:
                message = (
                    "The process exited without reporting an error: it was killed, or it crashed."
                )
                note(group, FAILED, worker.index, message)
                group.fail(group.lost(worker, message))
        if group.failure is not None:
            gloo_sockets.shut(self._addresses)  # those too that a step opens after it

    def _closed_links(self) -> list[Worker]:
        group = self._group
        ends = group.others if group.is_chief else (group.workers[0],)
        return [
            worker
            for worker, link in zip(ends, group.links, strict=True)
            if meeting.has_closed(link)
        ]

    def _find_silent(self, beats: dict[str, str], now: float) -> None:
        """Loses processes that have shown no sign of life for too long."""
        for worker in self._group.others:
            beat = beats.get(str(worker.index), "")
            known, since = self._beats.get(worker.index, (None, now))
            if beat != known:
                self._beats[worker.index] = (beat, now)
            elif now - since > self._limit and worker.index not in self._left:
                message = (
                    f"It has shown no sign of life for {now - since:.0f} seconds: it is stopped, "
                    "or its machine can't be reached."
                )
                self._group.fail(self._group.lost(worker, message))

    def _end_steps_later(self, worker: Worker, now: float) -> None:
        """Ends steps that wait for a process whose program has come to its end."""
        since = self._left.setdefault(worker.index, now)
        if now - since > _AFTER_LEAVING_SECONDS:
            gloo_sockets.shut(self._addresses)
