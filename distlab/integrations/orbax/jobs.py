"""Writing in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, final

from distlab.threads import Thread

_running: set[Job] = set()


@final
class Job:
    """A thread that calls a function once. The process does not end before it has.

    Args:
      function: The function.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._error: BaseException | None = None
        self._thread = Thread(self._run, name="distlab-checkpoint", daemon=False)
        _running.add(self)
        self._thread.start()

    def wait(self) -> None:
        """Waits for the end; raises what the function raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 - raised again by `wait`
            self._error = error
        finally:
            _running.discard(self)


def _finish() -> None:
    """Waits for all jobs, as long as Orbax can still start threads."""
    for job in list(_running):
        job.wait()


# A handler of `atexit` would be too late: by then Python starts no thread for Orbax any more.
_register: Any = getattr(threading, "_register_atexit", None)
if _register is not None:
    _register(_finish)
