"""What a step logs: read when Keras asks for the numbers, and then recorded as metrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, final

import numpy as np

from distlab.events import Metric, sink
from distlab.integrations.keras.rows import mean_of

Path: TypeAlias = tuple[str, ...]
"""Where a number is in the logs: its name, after those of the dicts around it."""


@final
class StepLogs:
    """The numbers that a step logged on each replica.

    Args:
      paths: Where they are in the logs.
      values: A vector of the numbers, for each replica.
      sizes: The number of each replica's examples in the step.
      record: Whether to record them as metrics, when they are read.
    """

    def __init__(
        self, paths: Iterable[Path], values: Any, sizes: tuple[int, ...], *, record: bool
    ) -> None:
        self._paths = list(paths)
        self._values = values
        self._sizes = sizes
        self._numbers: np.ndarray | None = None
        self._lock = threading.Lock()  # Keras reads them in threads
        recorder = sink.recorder()
        self._step = getattr(recorder, "last_step", -1)
        self._record = record and recorder.enabled

    def items(self) -> dict[Path, LoggedNumber]:
        """Returns each number by its path."""
        return {path: LoggedNumber(self, i) for i, path in enumerate(self._paths)}

    def numbers(self) -> np.ndarray:
        """Waits for the step and returns the mean of the replicas that have examples."""
        with self._lock:
            if self._numbers is None:
                self._numbers = mean_of(self._values, self._sizes)
                self._values = None
                if self._record:
                    names = (path[-1] for path in self._paths)  # as Keras shows them
                    emit(self._step, dict(zip(names, self._numbers.tolist(), strict=True)))
            return self._numbers


@final
class LoggedNumber:
    """One number that a step logged; reading it waits for the step."""

    __slots__ = ("_logs", "_position")

    def __init__(self, logs: StepLogs, position: int) -> None:
        self._logs = logs
        self._position = position

    def __float__(self) -> float:
        """Returns the number."""
        return float(self._logs.numbers()[self._position])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Returns the number as an array of shape ()."""
        del copy
        return np.asarray(self._logs.numbers()[self._position], dtype)

    def __repr__(self) -> str:
        """Shows the number."""
        return repr(float(self))


def flattened(logs: Mapping[str, Any], outer: Path = ()) -> dict[Path, Any]:
    """Returns the values in logs, and in the dicts in them, by their paths."""
    flat: dict[Path, Any] = {}
    for name, value in logs.items():
        path = (*outer, name)
        flat |= flattened(value, path) if isinstance(value, Mapping) else {path: value}
    return flat


def nested(values: Mapping[Path, Any]) -> dict[str, Any]:
    """Returns logs with the values at their paths."""
    logs: dict[str, Any] = {}
    for path, value in values.items():
        place = logs
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = value
    return logs


def emit(step: int, values: Mapping[str, float]) -> None:
    """Records numbers as metrics of a step."""
    recorder = sink.recorder()
    if recorder.enabled and values:
        recorder.emit(Metric(time_ns=time.monotonic_ns(), step=step, values=dict(values)))
