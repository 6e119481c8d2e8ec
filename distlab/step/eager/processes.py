"""The replicas of several processes at one rendezvous of an eager function."""

from __future__ import annotations

import json
from typing import final

from distlab.devices.mesh import ReplicaMesh
from distlab.errors import ContextError, WorkerError
from distlab.processes import group


@final
class ProcessMeeting:
    """Tells the processes at which rendezvous each of them is, before they combine values.

    Args:
      mesh: The replicas' devices. Where they are all of this process, nothing is told.
    """

    def __init__(self, mesh: ReplicaMesh) -> None:
        self._processes = group.current() if mesh.shared else None
        self._over = self._processes is None

    def meet(self, verb: str | None) -> None:
        """Waits until the replicas of all processes are at the same rendezvous."""
        processes = self._processes
        if processes is None:
            return
        self._over = True  # the others have this process's text, whatever happens here
        told = [json.loads(t) for t in processes.exchange("eager", json.dumps([verb, None]))]
        for worker, (_, failure) in zip(processes.workers, told, strict=True):
            if failure is not None:
                raise WorkerError(worker.name, worker.host, failure)
        verbs = {
            worker.name: theirs for worker, (theirs, _) in zip(processes.workers, told, strict=True)
        }
        if len(set(verbs.values())) > 1:
            raise ContextError(
                "All replicas must call the same collectives and merge_calls in the same order, "
                f"but the workers are at {verbs} (None: they have returned). Call them on every "
                "worker, not under an `if` that only some enter."
            )
        self._over = verb is None

    def failed(self, error: BaseException) -> None:
        """Tells the others that the function raised here, unless they know."""
        if self._processes is not None and not self._over:
            self._over = True
            text = f"{type(error).__name__}: {error}"
            self._processes.tell("eager", json.dumps([None, text]))
