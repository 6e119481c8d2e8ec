"""The future result of a function that a worker runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, final

import jax
import numpy as np

from distlab.values.not_an_array import NotAnArray


@final
class RemoteValue(NotAnArray):
    """The result of `ClusterCoordinator.schedule` (`tf.distribute.coordinator.RemoteValue`).

    Args:
      wait: Waits until an event is set; raises an error when that takes too long.

    Attributes:
      ended: Set when the function has ended.

    Example:
      >>> import distlab as dl
      >>> cluster = dl.ClusterSpec({"worker": ["a:2501"], "ps": ["b:2501"]})
      >>> servers = [dl.Server(cluster, job_name=job) for job in cluster.jobs]
      >>> resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
      >>> strategy = dl.ParameterServerStrategy(resolver)
      >>> coordinator = dl.coordinator.ClusterCoordinator(strategy)
      >>> result = coordinator.schedule(strategy.run, (lambda x: x * 2.0, (3,)))
      >>> result.get(), result.fetch()
      (Array(6., dtype=float32, weak_type=True), np.float32(6.0))
    """

    _what = "is the result of a function that a worker runs"
    _passing = ""
    _reading = "Call fetch() on it first"

    __array__ = __float__ = __int__ = __complex__ = NotAnArray._refuse

    def __init__(self, wait: Callable[[threading.Event], None]) -> None:
        self._wait = wait
        self.ended = threading.Event()
        self._value: Any = None
        self._load: Callable[[], Any] | None = None
        self._error: BaseException | None = None

    def __eq__(self, other: object) -> bool:
        """Compares results by identity; refuses arrays and numbers."""
        return self is other if isinstance(other, RemoteValue) else super().__eq__(other)

    __hash__ = object.__hash__

    def get(self) -> Any:
        """Waits for the function's result and returns it unchanged.

        Raises:
          CancelledError: The function did not run, because another one failed.
          ClusterError: No function began or ended in time.
          ContextError: A worker runs the calling function, and the result is not there yet.
          Exception: The function raised it.

        Example:
          >>> import distlab as dl
          >>> cluster = dl.ClusterSpec({"worker": ["a:2502"], "ps": ["b:2502"]})
          >>> servers = [dl.Server(cluster, job_name=job) for job in cluster.jobs]
          >>> resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
          >>> coordinator = dl.coordinator.ClusterCoordinator(dl.ParameterServerStrategy(resolver))
          >>> coordinator.schedule(pow, (2, 3)).get()
          8
        """
        self._wait(self.ended)
        if self._error is not None:
            raise self._error
        if self._load is not None:
            self._value, self._load = self._load(), None
        return self._value

    def fetch(self) -> Any:
        """Waits for the function's result and returns it with NumPy arrays.

        Raises:
          CancelledError: The function did not run, because another one failed.
          ClusterError: No function began or ended in time.
          ContextError: A worker runs the calling function, and the result is not there yet.
          Exception: The function raised it.

        Example:
          >>> import distlab as dl
          >>> cluster = dl.ClusterSpec({"worker": ["a:2503"], "ps": ["b:2503"]})
          >>> servers = [dl.Server(cluster, job_name=job) for job in cluster.jobs]
          >>> resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
          >>> strategy = dl.ParameterServerStrategy(resolver)
          >>> coordinator = dl.coordinator.ClusterCoordinator(strategy)
          >>> coordinator.schedule(strategy.run, (lambda x: x * 2.0, (3,))).fetch()
          np.float32(6.0)
        """
        return jax.tree.map(_to_numpy, self.get())

    def set(self, value: Any) -> None:
        """Sets the function's result."""
        self._value = value
        self.ended.set()

    def set_sent(self, load: Callable[[], Any]) -> None:
        """Sets a result of another process, which is loaded when it is asked for: most are not."""
        self._load = load
        self.ended.set()

    def fail(self, error: BaseException) -> None:
        """Sets the function's error."""
        self._error = error
        self.ended.set()

    def __repr__(self) -> str:
        """Returns whether the function ended, and how."""
        if not self.ended.is_set():
            return "RemoteValue(pending)"
        if self._error is not None:
            return f"RemoteValue(failed: {type(self._error).__name__})"
        return "RemoteValue(ready)"


def _to_numpy(leaf: Any) -> Any:
    return np.asarray(leaf)[()] if isinstance(leaf, jax.Array) else leaf
