"""Which worker runs the present thread, as `tf.distribute.coordinator` asks it."""

from __future__ import annotations

from distlab.errors import ContextError
from distlab.strategies.workers import current_worker


def experimental_get_current_worker_index() -> int:
    """Returns the number of the worker that runs the calling function, from 0.

    Call it in a function given to `ClusterCoordinator.schedule`, or in a
    dataset function, to let each worker read a part of its own. The name is
    that of `tf.distribute.coordinator`.

    Raises:
      ContextError: called elsewhere.
    """
    worker = current_worker()
    if worker is None:
        raise ContextError(
            "experimental_get_current_worker_index must be called by a function that a worker "
            "runs, and this thread is no worker's. Call it inside a function given to "
            "ClusterCoordinator.schedule."
        )
    return worker
