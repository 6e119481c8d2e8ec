"""When workers and parameter servers in other processes are lost, and when they return."""

from __future__ import annotations

import threading
import time
from typing import Literal, TypeAlias, final

import msgspec

from distlab.events import TaskState, sink

_State: TypeAlias = Literal["lost", "returned"]


@final
class TaskLog:
    """Tells of each loss once, with its reason.

    A process that was killed closes its connections a moment before its exit code is known, so a
    loss is noted first and told when its reason is settled, or when a recording ends.

    Args:
      strategy: Number of the strategy.
    """

    def __init__(self, strategy: int) -> None:
        self._strategy = strategy
        self._lock = threading.Lock()
        self._untold: dict[tuple[int, bool], TaskState] = {}
        sink.gatherers.add(self)

    def lost(self, task: int, reason: str, *, server: bool) -> None:
        """Notes that a worker or a parameter server is lost."""
        with self._lock:
            self._untold[task, server] = self._event(task, "lost", reason, server=server)

    def settle(self, task: int, reason: str, *, server: bool) -> None:
        """Tells of a loss, unless that was done."""
        with self._lock:
            noted = self._untold.pop((task, server), None)
            if noted is not None:
                known = msgspec.structs.replace(noted, reason=reason or noted.reason)
                sink.recorder().emit(known)

    def returned(self, task: int, *, server: bool) -> None:
        """Tells that a lost worker or parameter server is there again."""
        self.settle(task, "", server=server)
        sink.recorder().emit(self._event(task, "returned", "", server=server))

    def tell(self) -> None:
        """Tells of all losses, as a recording begins or ends."""
        with self._lock:
            untold, self._untold = self._untold, {}
            for noted in untold.values():
                sink.recorder().emit(noted)

    def _event(self, task: int, state: _State, reason: str, *, server: bool) -> TaskState:
        return TaskState(
            time_ns=time.monotonic_ns(),
            strategy=self._strategy,
            job="ps" if server else "worker",
            task=task,
            state=state,
            reason=reason,
        )
