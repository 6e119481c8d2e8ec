"""Which worker runs the present thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from distlab.errors import ContextError

_thread = threading.local()


@contextmanager
def running_as(worker: int) -> Iterator[None]:
    """Makes this thread a worker's for the block."""
    _thread.worker = worker
    try:
        yield
    finally:
        _thread.worker = None


def experimental_get_current_worker_index() -> int:
    """Returns the number of the worker that runs the calling function, from 0.

    Call it in a function given to `ClusterCoordinator.schedule`, or in a
    dataset function, to let each worker read a part of its own. The name is
    that of `tf.distribute.coordinator`.

    Raises:
      ContextError: called elsewhere.
    """
    worker: int | None = getattr(_thread, "worker", None)
    if worker is None:
        raise ContextError(
            "experimental_get_current_worker_index must be called by a function that a worker "
            "runs, and this thread is no worker's. Call it inside a function given to "
            "ClusterCoordinator.schedule."
        )
    return worker
