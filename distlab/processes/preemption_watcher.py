"""Whether a process of the program was told that it will be taken away."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Final, final

from distlab.processes import group
from distlab.processes.group import ProcessGroup
from distlab.processes.preemption import (
    end_thread,
    give_notice,
    noticed_worker,
    sigterm_since,
    watch_for_sigterm,
)

_POLL_SECONDS: Final = 0.2


@final
class PreemptionWatcher:
    """Watches for SIGTERM on any worker (`tf.distribute.experimental.PreemptionWatcher`).

    Every worker makes one, once it has its strategy. SIGTERM then ends no process: the program
    looks at `preemption_message`. To save on all workers at one step, use a
    `PreemptionCheckpointHandler`.

    Raises:
      ContextError: It is made in another thread than the main one, which alone hears of signals.

    Example:
      >>> import os
      >>> import signal
      >>> import distlab as dl
      >>> watcher = dl.experimental.PreemptionWatcher()
      >>> watcher.preemption_message is None
      True
      >>> os.kill(os.getpid(), signal.SIGTERM)
      >>> watcher.preemption_message
      'This process is to be taken away.'
    """

    def __init__(self) -> None:
        self._made = time.monotonic()
        self._processes = group.current()
        watch_for_sigterm()
        if self._processes is not None:
            ended = threading.Event()
            teller = threading.Thread(
                target=_tell,
                args=(self._processes, self._made, ended),
                name="distlab-preemption",
                daemon=True,
            )
            weakref.finalize(self, end_thread, ended, teller)
            teller.start()

    @property
    def preemption_message(self) -> str | None:
        """Which worker is to be taken away; None as long as there is none."""
        if self._processes is None:
            return "This process is to be taken away." if sigterm_since(self._made) else None
        worker = noticed_worker(self._processes)
        return None if worker is None else f"{worker} is to be taken away."

    def block_until_worker_exit(self) -> None:
        """Waits until the worker that is to be taken away has ended.

        It returns at once where there is none, or where that is this process.
        """
        processes = self._processes
        worker = None if processes is None else noticed_worker(processes)
        if processes is None or worker is None or worker.index == processes.index:
            return
        pause = threading.Event()
        while processes.failure is None and not processes.has_left(worker):
            pause.wait(_POLL_SECONDS)


def _tell(processes: ProcessGroup, made: float, ended: threading.Event) -> None:
    """Tells the others of a SIGTERM."""
    while not ended.wait(_POLL_SECONDS):
        if sigterm_since(made):
            give_notice(processes)
            return
