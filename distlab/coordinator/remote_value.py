"""The result of a function that a worker runs, before it is there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, final

import jax
import numpy as np


@final
class RemoteValue:
    """What `ClusterCoordinator.schedule` returns (`tf.distribute.coordinator.RemoteValue`).

    Args:
      wait: waits until an event is set; raises when that takes too long.
    """

    def __init__(self, wait: Callable[[threading.Event], None]) -> None:
        self._wait = wait
        self._over = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def get(self) -> Any:
        """Waits for the function's result and returns it as it is.

        Raises:
          CancelledError: the function did not run, as another one failed.
          ClusterError: no worker got on for too long.
          Exception: what the function raised.
        """
        self._wait(self._over)
        if self._error is not None:
            raise self._error
        return self._value

    def fetch(self) -> Any:
        """Waits for the function's result and returns it with NumPy arrays; else as `get`."""
        return jax.tree.map(_to_numpy, self.get())

    def set(self, value: Any) -> None:
        """Takes the result."""
        self._value = value
        self._over.set()

    def fail(self, error: BaseException) -> None:
        """Takes the error instead of a result."""
        self._error = error
        self._over.set()

    def __repr__(self) -> str:
        """Says how far it is."""
        if not self._over.is_set():
            return "RemoteValue(not there yet)"
        if self._error is not None:
            return f"RemoteValue(failed: {type(self._error).__name__})"
        return "RemoteValue(there)"


def _to_numpy(leaf: Any) -> Any:
    return np.asarray(leaf)[()] if isinstance(leaf, jax.Array) else leaf
